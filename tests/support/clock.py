"""A wall clock that a test sets by its ``now``, in seconds since the epoch."""

from __future__ import annotations


class Clock:
    def __init__(self, now: float = 1_780_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
