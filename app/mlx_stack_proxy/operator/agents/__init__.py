"""``mlx-stack-proxy agents``: what a client needs to ask this proxy, printed or written.

``clients`` is the table: a row for each client. ``client_file`` puts settings into a file that
somebody else owns, and takes them back. ``command`` asks, keeps the backup, and prints.
"""
