"""The command ``service``: the proxy as a service of launchd or systemd, on this machine."""

from .commands import add_commands

__all__ = ["add_commands"]
