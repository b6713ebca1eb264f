"""One reply while it is being written: text that goes round, whitespace, repeated calls."""
