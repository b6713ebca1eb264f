"""Mending a call that has exactly one sensible reading: its text, then its shape and values."""
