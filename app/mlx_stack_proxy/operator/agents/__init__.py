"""``mlx-stack-proxy agents``: print or write the settings that let a client use this proxy.

``clients`` is the table: a row for each client. ``client_file`` puts our settings into the text of
a client's own file, and removes them again. ``command`` asks the user, keeps the backup, prints
and writes.
"""
