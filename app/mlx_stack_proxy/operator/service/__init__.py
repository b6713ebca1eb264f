"""The command ``service``: run the proxy as a service of launchd or systemd on this machine."""
