"""Watches one reply while it is written: for repeated text, endless whitespace, repeated calls."""
