"""Check that ports are free, and find out which process listens on a port that is not."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterable
from pathlib import Path

import psutil

from .. import CommandError

# The program, the module after `-m`, or the module's file.
_OURS = re.compile(r"(^|/)(mlx-stack-proxy|mlx_stack_proxy(/__main__\.py)?)$")


def require_free(ports: Iterable[tuple[int, str, str]]) -> None:
    """Make sure that all ports are free and different. Raises :class:`CommandError`.

    ``ports``: each port's number, its purpose, and the option that changes it.
    """
    purposes: dict[int, str] = {}
    for port, purpose, option in ports:
        if not 0 < port < 65536:
            raise CommandError(f"{option}: {port} is not a port number")
        if port in purposes:
            raise CommandError(f"port {port} is given for both {purposes[port]} and {purpose}")
        purposes[port] = purpose
        if not is_free(port):
            raise CommandError(
                f"port {port} (for {purpose}) is in use by {_owner(port)}; "
                f"stop that, or choose another with {option}"
            )


def is_free(port: int) -> bool:
    """Whether nothing listens on this port of 127.0.0.1, and we may."""
    # Connect first: macOS lets us bind 127.0.0.1 even if another process listens on all addresses.
    with socket.socket() as probe:
        probe.settimeout(1)
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            return False
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _owner(port: int) -> str:
    """Say which process listens on a port; other users' processes are hidden from us."""
    with contextlib.suppress(psutil.Error):
        if (process := _listener(port)) is not None:
            # The outermost process first: the user has to end `up`, not the `serve` it started.
            for candidate in (*reversed(process.parents()), process):
                if command := our_command(candidate.cmdline()):
                    return f"another `mlx-stack-proxy {command}` (process {candidate.pid})"
            return f"{process.name()} (process {process.pid})"
    return "another program"


def working_folder(port: int) -> Path | None:
    """Return the working folder of the process that listens on a port; None if unknown."""
    with contextlib.suppress(psutil.Error):
        if not is_free(port) and (process := _listener(port)) is not None:
            return Path(process.cwd())
    return None


def _listener(port: int) -> psutil.Process | None:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            for connection in process.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return process
    return None


def our_command(command: list[str]) -> str:
    """Return ``up`` or ``serve`` if a command line runs that command of ours, else ""."""
    for place, word in enumerate(command):
        if word in ("up", "serve"):
            return word if any(_OURS.search(part) for part in command[:place]) else ""
    return ""
