"""The HTTP edge: checks each request, and passes it to the handler of its path."""
