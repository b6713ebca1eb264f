"""The HTTP edge: who may come in, what came, and where it goes."""
