"""Notifies systemd that the proxy is ready, for units with ``Type=notify``: sd_notify(3).

``systemctl restart`` then waits until the proxy answers, and fails if the proxy can't start.
"""

from __future__ import annotations

import os
import socket

from .. import log

VARIABLE = "NOTIFY_SOCKET"


def ready() -> None:
    """Send ``READY=1`` if systemd waits for it; log an error rather than raise one."""
    address = os.environ.get(VARIABLE)
    if not address:
        return
    if address.startswith("@"):  # a socket in the abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(address)
            sender.send(b"READY=1")
    except OSError as error:
        log.get().error("systemd_not_told", error=error.strerror)
