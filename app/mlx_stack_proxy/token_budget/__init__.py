"""Limits the length of a reply, and the tokens of a session and an hour."""
