"""The commands of ``mlx-stack-proxy``; ``cli.py`` has their table."""


class CommandError(Exception):
    """A command can't be done: its exit code is 1. The message is one line for the user."""
