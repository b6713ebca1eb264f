"""Reads and writes the protocols that clients speak, as bytes and JSON. Makes no decisions."""
