"""Mend a call that has exactly one sensible reading: first its text, then its shape and values."""
