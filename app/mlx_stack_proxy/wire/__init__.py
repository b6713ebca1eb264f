"""Bytes and JSON of the protocols that clients speak; nothing here decides anything."""
