"""Watches a growing reply for repeated text, endless whitespace and repeated calls."""
