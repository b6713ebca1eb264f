"""Tokens a second that each tier writes, for people who look; no rule uses them.

A tier's rate is its tokens of the last minute over the seconds of this minute in which it had a
call. A call's tokens are spread evenly over its time; a running call counts with the tokens that it
has written so far. Only whole calls are remembered, so a token costs nothing while it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

WINDOW: Final = 60.0  # seconds
MOST_CALLS: Final = 2_000  # the newest ones are remembered; older ones don't count

# A running call: its tier, the tokens that it has written so far, the time at which it began.
Writing = tuple[str, int, float]


class TokenRates:
    """The rates of all tiers. Times are seconds of one clock, passed in."""

    def __init__(self) -> None:
        # Calls that have ended: tier, tokens, begin, end.
        self._ended: deque[tuple[str, int, float, float]] = deque(maxlen=MOST_CALLS)

    def ended(self, tier: str, tokens: int, began: float, now: float) -> None:
        """Remember a call that has ended ``now``."""
        self._ended.append((tier, tokens, began, now))

    def per_second(self, now: float, running: Iterable[Writing]) -> dict[str, float]:
        """Return tokens a second by tier; tiers without a call in the last minute are left out."""
        since = now - WINDOW
        calls: dict[str, list[tuple[float, float, int]]] = {}
        for tier, tokens, began, end in self._ended:
            if end > since:
                calls.setdefault(tier, []).append((began, end, tokens))
        for tier, tokens, began in running:
            calls.setdefault(tier, []).append((began, now, tokens))
        return {tier: _rate(sorted(tier_calls), since) for tier, tier_calls in calls.items()}


def _rate(calls: list[tuple[float, float, int]], since: float) -> float:
    """Return one tier's tokens a second. ``calls``: begin, end and tokens, sorted by begin."""
    written = busy = 0.0
    upto = since
    for began, end, tokens in calls:
        within = end - max(began, since)
        written += tokens * within / (end - began) if end > began else tokens
        busy += max(0.0, end - max(began, upto))
        upto = max(upto, end)
    return written / busy if busy else 0.0
