"""Applies the time limits to one exchange, and sends signs of life.

``watch.py`` calls :meth:`Timers.tick` several times a second. A tick returns the verdict of a limit
that has been reached, starts a question about a silent server's health, and sends a keep-alive if
the client has had no bytes for long.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..settings import StreamSettings
from .answer import Answer
from .attempt import Attempt
from .deadlines import Deadlines, out_of_patience, silent_until
from .decisions import Decisions
from .exchange import Exchange
from .services import Services
from .upstream import HEALTH_SECONDS
from .verdicts import LeftOpen, UpstreamFailed, Verdict

_DEFAULTS = StreamSettings()


@dataclass(slots=True, eq=False)
class Timers:
    """The timers of one exchange, told when each upstream call begins and ends.

    Times are in seconds on ``clock``, which is the event loop's.
    """

    services: Services
    exchange: Exchange
    answer: Answer
    decisions: Decisions
    clock: Callable[[], float]
    opinion_until: float = math.inf  # when an attempt that asks for a second opinion is given up
    # When the call's newest bytes came; None: none came, or the deadlines know of them already.
    heard_at: float | None = None
    _health_question: asyncio.Task[None] | None = None  # asks whether a silent server is alive
    _attempt: Attempt | None = None  # the attempt of the newest call
    _progress: tuple[int, bool] = (0, False)  # pieces of the reply so far, and whether it finished
    _deadlines: Deadlines | None = None  # the running call's; None: no call runs

    def close(self) -> None:
        if self._health_question is not None:
            self._health_question.cancel()

    def begin(self, attempt: Attempt, now: float) -> None:
        """Note that an attempt's upstream call begins."""
        self._attempt = attempt
        self.heard_at = None
        self._progress = (0, False)
        self._deadlines = Deadlines(
            self.services.settings.tiers.get(attempt.request.tier),
            tools=bool(self.exchange.request.tools),
            began=now,
            streams=bool(attempt.request.body.get("stream")),
            silent_until=silent_until(self.exchange, self.services.settings),
        )

    def end(self) -> None:
        """Note that the call, or the wait for its turn, is over."""
        self._deadlines = None
        self.opinion_until = math.inf
        self.close()

    def _tell_heard(self, *, excused: bool = False) -> None:
        """Tell the deadlines of the bytes that came: once a tick, so that a chunk costs nothing.

        ``excused``: the model could say nothing, because the client takes no bytes.
        """
        heard_at, self.heard_at = self.heard_at, None
        attempt, deadlines = self._attempt, self._deadlines
        if heard_at is None or attempt is None or deadlines is None:
            return
        before, self._progress = self._progress, (attempt.reply.pieces, attempt.finished)
        begun, finished = bool(attempt.reply.choices), attempt.finished
        said = excused or before != self._progress
        counted = attempt.reply.usage is not None
        deadlines.heard(heard_at, begun=begun, finished=finished, counted=counted, said=said)

    def tick(self, now: float) -> Verdict | None:
        """Do what is due; return the verdict that interrupts the exchange, None: go on."""
        self._tell_heard()
        deadlines, attempt = self._deadlines, self._attempt
        if impatient := out_of_patience(self.exchange, now):
            finished = deadlines is not None and attempt is not None and attempt.finished
            return LeftOpen() if finished else impatient
        if now >= self.opinion_until:
            return UpstreamFailed("timeout", "no second opinion in time", blameless=True)
        if self.answer.busy:
            return self._check_total_time_only(now)
        if deadlines is not None and attempt is not None:
            if verdict := deadlines.check(now) or self._hang_timeout(deadlines, attempt, now):
                return verdict
            if deadlines.begin_asking(now):
                self._health_question = asyncio.ensure_future(self._ask_health(deadlines))
        if now >= self._next_sign_at():
            self.answer.send_sign_of_life(now)
        return None

    def _next_sign_at(self) -> float:
        """Return when the next sign of life to the client is due; infinity: never."""
        stream, request = self.services.settings.stream, self.exchange.request
        if not stream.keepalive_seconds or not request.stream:
            return math.inf
        due = self.answer.last_write + stream.keepalive_seconds
        first = request.dialect.first_keepalive if request.dialect is not None else None
        by_hand = stream.keepalive_seconds != _DEFAULTS.keepalive_seconds
        if first is None or by_hand or self.answer.downstream.started:
            return due
        return max(due, request.started + first)  # the first sign of life fixes the status

    def _hang_timeout(self, deadlines: Deadlines, attempt: Attempt, now: float) -> Verdict | None:
        """Return a hanging model's timeout, if the client has no text and a better step follows."""
        hung = deadlines.hangs(now)
        if hung is None:
            return None
        committed = attempt.committed
        text_is_out = committed is not None and committed.stays
        return hung if not text_is_out and self.decisions.leaves_silent(hung, now) else None

    def _check_total_time_only(self, now: float) -> Verdict | None:
        """While the client takes no bytes, count no silence, only the call's total time.

        That limit stays, so that the call doesn't keep its place on the tier for ever.
        """
        self.answer.last_write = now
        if self._deadlines is None:
            return None
        self.heard_at = now
        self._tell_heard(excused=True)
        timeout = self._deadlines.check(now)
        if isinstance(timeout, UpstreamFailed):
            return replace(timeout, blameless=True)
        return timeout

    async def _ask_health(self, deadlines: Deadlines) -> None:
        """Ask a silent tier's server whether it is alive, then LiteLLM, which may hang itself."""
        tier, upstream = self.exchange.tier, self.services.upstream
        url = self.services.settings.tiers[tier].health_url
        assert url is not None
        server = await upstream.answers(url, HEALTH_SECONDS)
        direct = tier in self.exchange.route.direct
        litellm = direct or not server or await upstream.is_alive(HEALTH_SECONDS)
        deadlines.answered(self.clock(), server=server, litellm=litellm)
