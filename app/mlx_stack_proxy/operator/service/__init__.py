"""The command ``service``: run the proxy as a service of launchd or systemd on this machine.

``commands`` works out what the service is to run; ``managers`` has launchd and systemd.
"""
