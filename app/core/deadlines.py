"""When an attempt has been silent, or has run, for too long (DESIGN §8, timeouts)."""

from __future__ import annotations

from ..settings import TierSettings
from .verdicts import LeftOpen, UpstreamFailed

# After its finish_reason a reply has only its usage and ``[DONE]`` to come. A server that neither
# sends them nor closes keeps nobody waiting for longer than this.
AFTER_FINISH_SECONDS = 2.0


class Deadlines:
    """The time limits of one attempt; all times in seconds on one clock.

    ``streams``: upstream was asked for a stream. An answer that comes whole has no first token
    before its end.
    """

    __slots__ = ("_finished", "_first", "_idle", "_last", "_started", "_total", "_waiting")

    def __init__(
        self, tier: TierSettings | None, *, tools: bool, now: float, streams: bool = True
    ) -> None:
        limits = tier or _PASS_THROUGH
        silence = limits.tool_silence_timeout if tools else 0.0
        self._first = max(limits.first_token_timeout, silence)
        self._idle = max(limits.idle_timeout, silence)
        self._total = limits.total_timeout
        if not streams:
            self._first = self._total
        self._started = self._last = now
        self._waiting = True
        self._finished = False

    def heard(self, now: float, *, begun: bool, finished: bool = False) -> None:
        """Bytes came. Any byte is a sign of life.

        ``begun``: the reply has content by now; ``finished``: it has its finish_reason.
        """
        self._last = now
        self._waiting = not begun
        self._finished = finished

    def next(self) -> float:
        """The time at which :meth:`check` may have something to say."""
        return min(self._last + self._patience, self._started + self._total)

    @property
    def _patience(self) -> float:
        if self._finished:
            return min(AFTER_FINISH_SECONDS, self._idle)
        return self._first if self._waiting else self._idle

    def check(self, now: float) -> UpstreamFailed | LeftOpen | None:
        """The limit that has been reached, if any."""
        if self._finished and now >= self._last + self._patience:
            return LeftOpen()
        if now >= self._started + self._total:
            return UpstreamFailed("timeout", f"no end of the reply within {self._total:g} s")
        if self._waiting and now >= self._last + self._first:
            return UpstreamFailed("timeout", f"nothing came within {self._first:g} s")
        if not self._waiting and now >= self._last + self._idle:
            return UpstreamFailed("timeout", f"nothing more came for {self._idle:g} s")
        return None


_PASS_THROUGH = TierSettings(model="")
