"""The HTTP edge: checks each request, and hands it to whoever answers its path."""
