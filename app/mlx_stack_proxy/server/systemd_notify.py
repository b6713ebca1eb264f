"""Tells systemd that the service serves, for units with ``Type=notify``: sd_notify(3).

So `systemctl restart` waits until the proxy answers, and fails when it doesn't begin to.
"""

from __future__ import annotations

import os
import socket

from ..telemetry import log

VARIABLE = "NOTIFY_SOCKET"


def ready() -> None:
    """Say so, where systemd waits for it; elsewhere nothing happens. Raises nothing."""
    address = os.environ.get(VARIABLE)
    if not address:
        return
    if address.startswith("@"):  # a name in the abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(address)
            sender.send(b"READY=1")
    except OSError as error:
        log.get().error("systemd_not_told", error=error.strerror)
