"""What the errors of tiers have taught: windows that are smaller than set, abilities they lack.

Pure; times are seconds of one clock, passed in, which may be put back: then all is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..engine.request import Request
from ..engine.verdicts import UpstreamFailed
from ..state.store import ROUNDING

# Other models may be put behind a tier while we run, and an error may have meant something else:
# one call in ten minutes that fails at once is a small price for finding out.
FORGET_SECONDS = 600.0
_NOT_IMPLEMENTED = 501


class LearnedLimits:
    """Of all tiers. What was learned is forgotten after ``FORGET_SECONDS``."""

    def __init__(self) -> None:
        # The value, and until when it counts.
        self._windows: dict[str, tuple[int, float]] = {}
        self._lacks: dict[tuple[str, str], float] = {}

    def take(self, tier: str, failure: UpstreamFailed, request: Request, now: float) -> None:
        """Learn from a call that failed; most teach nothing."""
        until = now + FORGET_SECONDS
        if failure.reason == "context_overflow":
            # Where no window is named, it is smaller than this prompt.
            found = failure.window or request.prompt_tokens - 1
            known = self.windows(now).get(tier, found)
            self._windows[tier] = (min(found, known), until)
        # A server in trouble says many things; one that refuses the request knows what it can't do.
        status = failure.status or 0
        if failure.lacks and (400 <= status < 500 or status == _NOT_IMPLEMENTED):
            self._lacks[tier, failure.lacks] = until

    def windows(self, now: float) -> Mapping[str, int]:
        """Context windows in tokens, by tier."""
        known = self._windows.items()
        return {tier: tokens for tier, (tokens, until) in known if _lasts(until, now)}

    def lacks(self, now: float) -> Mapping[str, frozenset[str]]:
        """The abilities that tiers have not, of ``ladder.ABILITIES``."""
        found: dict[str, frozenset[str]] = {}
        for (tier, ability), until in self._lacks.items():
            if _lasts(until, now):
                found[tier] = found.get(tier, frozenset()) | {ability}
        return found


def _lasts(until: float, now: float) -> bool:
    return 0.0 < until - now <= FORGET_SECONDS + ROUNDING
