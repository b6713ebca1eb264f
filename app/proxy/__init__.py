"""The async shell: it does the I/O that the core decides on."""
