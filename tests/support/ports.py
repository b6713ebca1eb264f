"""Ports of this machine on which nothing listens."""

from __future__ import annotations

import contextlib
import secrets
import socket

# Below those that systems give out by themselves, which may be somebody else's at any moment.
LOWEST, HIGHEST = 20_000, 30_000


def free_port(in_a_row: int = 1) -> int:
    """A free port; the first of so many free ones in a row.

    Chosen by real chance: a seeded one would give tests that run beside each other the same.
    """
    while True:
        first = LOWEST + secrets.randbelow(HIGHEST - LOWEST)
        with contextlib.ExitStack() as probes:
            try:
                for port in range(first, first + in_a_row):
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
