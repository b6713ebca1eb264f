"""Decisions without I/O: plain synchronous Python on plain data, with the clock passed in."""
