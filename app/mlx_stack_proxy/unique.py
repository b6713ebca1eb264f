"""Ids that nobody else has: of requests, their reservations and tool calls. They are no secrets.

The system's own source of randomness costs a call that lets other threads go first: 19 µs of CPU
and more waiting, where its seed alone does as well.
"""

from __future__ import annotations

import os
from random import Random

_random = Random()
os.register_at_fork(after_in_child=_random.seed)


def call_id() -> str:
    """Of a tool call that a model wrote without one."""
    return "call_" + unique(96)


def unique(bits: int) -> str:
    """So many random bits, whole bytes of them, in hex."""
    return _random.getrandbits(bits).to_bytes(bits // 8).hex()
