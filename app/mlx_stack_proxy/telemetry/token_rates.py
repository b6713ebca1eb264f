"""Tokens a second that each tier writes, for people who look; no rule uses them.

A tier's rate is its tokens of the last minute over the seconds of this minute in which it had a
call. A call's tokens are spread evenly over its time; a running call counts with the tokens that it
has written so far. The calls that have ended are those of the newest records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from ..engine.record import Record

WINDOW: Final = 60.0  # seconds

# A running call: its tier, the tokens that it has written so far, the seconds since it began.
Writing = tuple[str, int, float]


def per_second(
    records: Iterable[Record], running: Iterable[Writing], now: float
) -> dict[str, float]:
    """Return tokens a second by tier; tiers without a call in the last minute are left out.

    ``records``: the newest first. ``now``: as in :attr:`Record.time`.
    """
    since = now - WINDOW
    calls: defaultdict[str, list[tuple[float, float, int]]] = defaultdict(list)
    for record in records:
        end = record.time
        if end <= since:
            break
        for attempt in reversed(record.attempts):
            call = attempt.figures
            if (call.tokens_in or call.tokens_out) and end > since:
                calls[attempt.tier].append((end - call.seconds, end, call.tokens_out))
            end -= call.seconds + call.waited
    for tier, tokens, seconds in running:
        calls[tier].append((now - seconds, now, tokens))
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
