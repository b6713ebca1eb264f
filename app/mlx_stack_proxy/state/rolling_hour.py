"""Tokens of the last 60 minutes, exact to the minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from .store import MOST_TOKENS

MINUTE = 60.0
MINUTES = 60
HOUR = MINUTES * MINUTE
# A caller's clock may lag behind another's by this many minutes; further back, it has jumped.
LAG = 1


class RollingHour:
    """At most 61 buckets, one a minute: O(1) in memory, no jump at the full hour.

    Where the clock jumps back, what is found in its future counts as spent now: nothing is lost,
    and nothing stays for longer than an hour.
    """

    __slots__ = ("_buckets", "_total")

    def __init__(self, buckets: Iterable[tuple[int, int]] = ()) -> None:
        """``buckets``: (minute, tokens), oldest first, as :meth:`buckets` gives them."""
        self._buckets: deque[tuple[int, int]] = deque(buckets)
        self._total = sum(tokens for _, tokens in self._buckets)

    def buckets(self) -> list[tuple[int, int]]:
        """What to keep of it: (minute since the epoch, tokens), oldest first."""
        return list(self._buckets)

    def add(self, tokens: int, now: float) -> None:
        minute = self._turn_to(now)
        tokens = min(tokens, MOST_TOKENS - self._total)
        self._total += tokens
        if self._buckets and self._buckets[-1][0] >= minute:
            minute, before = self._buckets.pop()
            tokens += before
        self._buckets.append((minute, tokens))

    def total(self, now: float) -> int:
        self._turn_to(now)
        return self._total

    def room_in(self, tokens: int, most: int, now: float) -> float:
        """Seconds until ``tokens`` fit under ``most``; an hour if they never will."""
        excess = self.total(now) + tokens - most
        for minute, held in self._buckets:
            excess -= held
            if excess <= 0:
                return max(0.0, (minute + MINUTES) * MINUTE - now)
        return HOUR

    def _turn_to(self, now: float) -> int:
        """Make the buckets those of the hour that ends now; the minute that it is."""
        minute = int(now // MINUTE)
        buckets = self._buckets
        if buckets and buckets[-1][0] > minute + LAG:
            future = 0
            while buckets and buckets[-1][0] >= minute:
                future += buckets.pop()[1]
            buckets.append((minute, future))
        while buckets and buckets[0][0] <= minute - MINUTES:
            self._total -= buckets.popleft()[1]
        return minute
