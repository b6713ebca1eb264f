"""Learns from tiers' replies: smaller context windows, missing features, obedience to schemas.

``ladder.py`` uses it, so that later requests skip a tier that would refuse them. Times are seconds
of the wall clock, passed in. If that clock is set back, everything is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..engine.outcome import Guided
from ..engine.overflow import prompts_in
from ..engine.request import Request
from ..engine.verdicts import Failure
from ..state.store import ROUNDING

# A tier may get another model while we run, and an error may have been misunderstood. One call in
# ten minutes that fails at once is a small price for finding out.
FORGET_SECONDS = 600.0
_NOT_IMPLEMENTED = 501
_SEARCHED = 500_000  # bytes of a request that are searched for numbers that an error may quote
_REPLY_LIMITS = ("max_tokens", "max_completion_tokens")
MIN_WINDOW = 1_024  # tokens; a smaller window is learned only from an error's field


class LearnedLimits:
    """What all tiers' errors have taught, kept for ``FORGET_SECONDS`` each."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[int, float]] = {}  # by tier: tokens and expiry
        self._lacks: dict[tuple[str, str], float] = {}  # by tier and feature: expiry
        self._obedient: set[str] = set()  # tiers whose last guided reply obeyed its schema
        self._refused: dict[str, float] = {}  # by tier that refused or disobeyed a schema: expiry
        self._strict: dict[str, float] = {}  # by tier: expiry

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been learned, including what has expired."""
        return not (self._windows or self._lacks or self._obedient or self._refused or self._strict)

    def take(
        self, tier: str, failure: Failure, request: Request, now: float, output: int = 0
    ) -> None:
        """Learn from a failed call; most failures teach nothing.

        ``output``: tokens that the call requested; many servers count them, too.
        """
        until = now + FORGET_SECONDS
        window = _window_from(failure, request, output)
        if window is not None:
            known_window = self.windows(now).get(tier, window)
            self._windows[tier] = (min(window, known_window), until)
        # A server in trouble may say anything; one that refuses the request knows its limits.
        status = failure.status or 0
        if failure.lacks and (400 <= status < 500 or status == _NOT_IMPLEMENTED):
            self._lacks[tier, failure.lacks] = until

    def take_guided(self, tier: str, result: Guided, now: float) -> None:
        """Learn from the result of a guided call."""
        if result == "obeyed":
            self._obedient.add(tier)
        elif result in ("disregarded", "refused"):
            self._obedient.discard(tier)
            self._refused[tier] = now + FORGET_SECONDS

    def guided(self, now: float) -> Mapping[str, bool]:
        """Return for each tier whether it obeys a schema; unknown tiers are absent."""
        refuse = [tier for tier, until in self._refused.items() if _lasts(until, now)]
        return dict.fromkeys(self._obedient, True) | dict.fromkeys(refuse, False)

    def take_strict(self, tier: str, now: float) -> None:
        """Learn that a tier accepted strictly placed messages after refusing the original ones."""
        self._strict[tier] = now + FORGET_SECONDS

    def strict(self, now: float) -> frozenset[str]:
        """Return the tiers whose chat template is strict (``wire/strict_template.py``)."""
        return frozenset(tier for tier, until in self._strict.items() if _lasts(until, now))

    def windows(self, now: float) -> Mapping[str, int]:
        """Return the learned context windows in tokens, by tier."""
        entries = self._windows.items()
        return {tier: tokens for tier, (tokens, until) in entries if _lasts(until, now)}

    def lacks(self, now: float) -> Mapping[str, frozenset[str]]:
        """Return the features (of ``tier_view.ABILITIES``) that tiers lack, by tier."""
        by_tier: dict[str, frozenset[str]] = {}
        for (tier, ability), until in self._lacks.items():
            if _lasts(until, now):
                by_tier[tier] = by_tier.get(tier, frozenset()) | {ability}
        return by_tier


def _window_from(failure: Failure, request: Request, output: int) -> int | None:
    """Return the window that an overflow teaches, or None.

    An error's text may quote this client, and must not close a tier to others. So a number in it
    counts only if the request doesn't contain it and if it fits the request: the prompt, of which
    our estimate may be half, or the tokens that the error says were requested.
    """
    if failure.kind != "context_overflow":
        return None
    window, prompt = failure.window, request.prompt_tokens
    if failure.in_field == "window":
        return window
    if window is None:
        # It shows only that the window is smaller than this prompt, perhaps with its output.
        window = prompt - 1 if failure.in_field == "overflow" and not failure.room else 0
    elif request.size > _SEARCHED:  # too large to search
        return None
    else:
        body = {key: value for key, value in request.body.items() if key not in _REPLY_LIMITS}
        if str(window) in repr(body).replace(",", ""):
            return None
    if window < MIN_WINDOW:
        return None
    asked = prompts_in(failure, prompt, output)
    return window if window <= 2 * prompt or any(window < n + output for n in asked) else None


def _lasts(until: float, now: float) -> bool:
    return 0.0 < until - now <= FORGET_SECONDS + ROUNDING
