"""The command ``service``: run the proxy as a service of launchd or systemd on this machine.

``commands`` works out what the service is to run. ``launchd`` and ``systemd`` set it up in steps,
each of which they give to a ``Machine``; with ``--dry-run`` that only prints them.
"""
