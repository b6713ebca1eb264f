"""Count the tokens of the last 60 minutes, exact to the minute."""

from __future__ import annotations

from collections.abc import Iterable

from .store import MOST_TOKENS

MINUTE = 60.0
MINUTES = 60
HOUR = MINUTES * MINUTE
# One caller's clock may lag behind another's by this many minutes. Tokens of a minute still further
# ahead were counted by a clock that has been put back since; they count as spent now.
LAG = 1


class RollingHour:
    """At most 61 buckets, one a minute: memory is bounded, no count jumps at the full hour."""

    __slots__ = ("_minutes", "has_moved")

    def __init__(self, buckets: Iterable[tuple[int, int]] = ()) -> None:
        """``buckets``: (minute since the epoch, tokens), oldest first."""
        self._minutes = dict(buckets)
        self.has_moved = False  # whether :meth:`total` has forgotten a minute, or re-dated it

    def buckets(self) -> list[tuple[int, int]]:
        """Return the buckets as the constructor takes them."""
        return list(self._minutes.items())

    def add(self, tokens: int, now: float) -> None:
        """Count tokens in the present minute, or in a later one that another clock has begun."""
        tokens = min(tokens, MOST_TOKENS - self.total(now))
        minute = max(int(now // MINUTE), *self._minutes, 0)
        self._minutes[minute] = self._minutes.get(minute, 0) + tokens

    def total(self, now: float) -> int:
        """Return the tokens of the hour that ends ``now``; forget older minutes."""
        minute = int(now // MINUTE)
        held = self._minutes
        if not held or minute - MINUTES < min(held) <= max(held) <= minute + LAG:
            return sum(held.values())
        self._minutes, self.has_moved = {}, True
        for old_minute, tokens in held.items():
            counted_minute = old_minute if old_minute <= minute + LAG else minute
            if counted_minute > minute - MINUTES:
                self._minutes[counted_minute] = self._minutes.get(counted_minute, 0) + tokens
        return sum(self._minutes.values())

    def room_in(self, tokens: int, limit: int, now: float) -> float:
        """Return the seconds until ``tokens`` fit under ``limit``; an hour if they never will."""
        excess = self.total(now) + tokens - limit
        for minute, spent in sorted(self._minutes.items()):
            excess -= spent
            if excess <= 0:
                return max(0.0, (minute + MINUTES) * MINUTE - now)
        return HOUR
