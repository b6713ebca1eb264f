"""Repairs a call that has exactly one sensible reading: first its text, then shape and values."""
