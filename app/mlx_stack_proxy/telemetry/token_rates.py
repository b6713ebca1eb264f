"""How many tokens a second each tier writes: for a person who looks, not for a rule.

Over the seconds of the last minute in which the tier had a call. A call's tokens are spread evenly
over its time; one that runs counts by what it has written so far. Nothing is kept of a token while
it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

WINDOW: Final = 60.0  # seconds
MOST_CALLS: Final = 2_000  # remembered; with more in a minute the oldest don't count

# A call that runs: its tier, tokens written so far, the time at which it began.
Writing = tuple[str, int, float]


class TokenRates:
    """Times are seconds of one clock, passed in."""

    def __init__(self) -> None:
        self._ended: deque[tuple[str, int, float, float]] = deque(maxlen=MOST_CALLS)

    def ended(self, tier: str, tokens: int, began: float, now: float) -> None:
        """A call has ended."""
        self._ended.append((tier, tokens, began, now))

    def per_second(self, now: float, running: Iterable[Writing]) -> dict[str, float]:
        """By tier; one that had no call in the last minute is not in it."""
        since = now - WINDOW
        calls: dict[str, list[tuple[float, float, int]]] = {}
        for tier, tokens, began, end in self._ended:
            if end > since:
                calls.setdefault(tier, []).append((began, end, tokens))
        for tier, tokens, began in running:
            calls.setdefault(tier, []).append((began, now, tokens))
        return {tier: _rate(sorted(found), since) for tier, found in calls.items()}


def _rate(calls: list[tuple[float, float, int]], since: float) -> float:
    """``calls``: begin, end and tokens, by begin."""
    written = busy = 0.0
    upto = since
    for began, end, tokens in calls:
        within = end - max(began, since)
        written += tokens * within / (end - began) if end > began else tokens
        busy += max(0.0, end - max(began, upto))
        upto = max(upto, end)
    return written / busy if busy else 0.0
