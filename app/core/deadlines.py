"""When an attempt has been silent, or has run, for too long (DESIGN §8, timeouts)."""

from __future__ import annotations

from ..settings import TierSettings
from .verdicts import UpstreamFailed


class Deadlines:
    """The time limits of one attempt; all times in seconds on one clock."""

    __slots__ = ("_first", "_idle", "_last", "_started", "_total", "_waiting")

    def __init__(self, tier: TierSettings | None, *, tools: bool, now: float) -> None:
        limits = tier or _PASS_THROUGH
        silence = limits.tool_silence_timeout if tools else 0.0
        self._first = max(limits.first_token_timeout, silence)
        self._idle = max(limits.idle_timeout, silence)
        self._total = limits.total_timeout
        self._started = self._last = now
        self._waiting = True

    def heard(self, now: float, *, begun: bool) -> None:
        """Bytes came; ``begun``: the reply has content by now. Any byte is a sign of life."""
        self._last = now
        self._waiting = not begun

    def next(self) -> float:
        """The time at which :meth:`check` may have something to say."""
        silence = self._last + (self._first if self._waiting else self._idle)
        return min(silence, self._started + self._total)

    def check(self, now: float) -> UpstreamFailed | None:
        """The timeout that has been reached, if any."""
        if now >= self._started + self._total:
            return UpstreamFailed("timeout", f"no end of the reply within {self._total:g} s")
        if self._waiting and now >= self._last + self._first:
            return UpstreamFailed("timeout", f"nothing came within {self._first:g} s")
        if not self._waiting and now >= self._last + self._idle:
            return UpstreamFailed("timeout", f"nothing more came for {self._idle:g} s")
        return None


_PASS_THROUGH = TierSettings(model="")
