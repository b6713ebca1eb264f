"""The command ``service``: the proxy as a service of launchd or systemd, on this machine.

``commands`` says what is to run; ``launchd`` and ``systemd`` have it done, step by step, by a
``Machine``, which with ``--dry-run`` only says what it would do.
"""
