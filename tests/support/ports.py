"""Ports of this machine on which nothing listens."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import tempfile
from pathlib import Path

# Below those that systems give out by themselves, which may be somebody else's at any moment.
LOWEST, HIGHEST = 20_000, 30_000

_given: set[int] = set()
_ledger: int | None = None


def free_port(in_a_row: int = 1) -> int:
    """A free port; the first of so many free ones in a row.

    A port is given out once: neither to the same process again nor, as long as this one lives, to
    another. Raises `OSError` where no such row is to be had.
    """
    for _ in range(1_000):
        # By real chance: a seeded one would give tests that run beside each other the same.
        first = LOWEST + secrets.randbelow(HIGHEST - LOWEST - in_a_row + 1)
        row = range(first, first + in_a_row)
        if all(_take(port) for port in row) and _nothing_listens(row):
            return first
    raise OSError(f"no {in_a_row} free ports in a row found from {LOWEST} to {HIGHEST}")


def _take(port: int) -> bool:
    if port in _given:
        return False
    try:
        # A lock for each port, all on one file: gone with the process, however it ends.
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _given.add(port)
    return True


def _locks() -> int:
    """The open file; never closed, since that would give back each lock on it."""
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
