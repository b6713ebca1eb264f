"""``mlx-stack-proxy launch`` and ``agents``: let a client use this proxy, or say how.

``clients`` is the table: a row for each client. ``command`` asks the running proxy what a client
must know, and starts the client or prints the same to be pasted. Neither changes a file of the
client's.
"""
