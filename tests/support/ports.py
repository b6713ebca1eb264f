"""Free ports for tests that run in parallel.

A port is drawn at random and taken by locking its byte in a file that all test processes share, so
that two of them never draw the same one. The operating system frees a process's locks at its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import tempfile
from pathlib import Path

# Below the range from which systems give out ports by themselves to any program.
LOWEST, HIGHEST = 20_000, 30_000

_given: set[int] = set()  # ports that this process has taken
_ledger: int | None = None  # the file with the locks


def free_port(in_a_row: int = 1) -> int:
    """Return a free port, or the first of ``in_a_row`` consecutive free ports.

    This process never gets the port again, and no other process gets it while this one lives.
    Raises ``OSError`` if it finds no such row.
    """
    for _ in range(1_000):
        # Unseeded, since processes with the same seed would draw the same ports.
        first = LOWEST + secrets.randbelow(HIGHEST - LOWEST - in_a_row + 1)
        row = range(first, first + in_a_row)
        if all(_take(port) for port in row) and _nothing_listens(row):
            return first
    raise OSError(f"no {in_a_row} free ports in a row found from {LOWEST} to {HIGHEST}")


def _take(port: int) -> bool:
    if port in _given:
        return False
    try:
        # Each port has one byte of the file to lock; the lock ends with the process.
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _given.add(port)
    return True


def _locks() -> int:
    """Return the open file. It is never closed, because that would free every lock on it."""
    global _ledger
    if _ledger is None:
        path = Path(tempfile.gettempdir()) / f"mlx-stack-test-ports-{os.getuid()}"
        _ledger = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    return _ledger


def _nothing_listens(ports: range) -> bool:
    with contextlib.ExitStack() as probes:
        try:
            for port in ports:
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
