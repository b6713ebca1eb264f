"""The time limits of one exchange, and the keepalives to its client.

:class:`TimeLimits` checks when something may be due (``watch.py``): it interrupts the exchange with
the verdict of a reached limit, starts a health check of a silent server, and sends a keepalive if
the client has had no bytes for long. The rules are in ``deadlines.py``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from msgspec.structs import replace

from ..engine.attempt import Attempt
from ..engine.deadlines import Deadlines, opinion_until, out_of_patience, silent_until
from ..engine.exchange import Exchange
from ..engine.upstream import HEALTH_SECONDS
from ..engine.verdicts import LEFT_OPEN, Failure, Verdict
from ..engine.watch import LEAST_SECONDS, Receive, Watch
from ..settings import StreamSettings
from .answer import Answer
from .services import Services

_DEFAULTS = StreamSettings()


class TimeLimits(Watch):
    """Watches one exchange. The driver reports when each of its calls begins and ends.

    ``leaves_silent``: whether to end the running call with a verdict, because there is a better
    alternative. Times are in seconds on the event loop's clock.
    """

    def __init__(
        self,
        receive: Receive,
        services: Services,
        exchange: Exchange,
        answer: Answer,
        leaves_silent: Callable[[Failure, float], bool],
    ) -> None:
        super().__init__(receive)
        self._settings = services.settings
        self._upstream = services.upstream
        self._exchange = exchange
        self._answer = answer
        self._leaves_silent = leaves_silent
        self._opinion_until = math.inf  # when an attempt for a second opinion is given up
        self._health_question: asyncio.Task[None] | None = None  # checks a silent server
        self._deadlines: Deadlines | None = None  # the running call's; None: there is none

    def stop(self) -> None:
        super().stop()
        self.end_call()

    def await_turn(self, now: float) -> None:
        """Record that an attempt begins to wait for its call."""
        self._opinion_until = opinion_until(self._exchange, self._settings, now)
        if self._opinion_until < math.inf:
            self.look_soon()

    def begin_call(self, attempt: Attempt, now: float) -> None:
        """Record that an attempt's upstream call begins."""
        self._deadlines = Deadlines(
            self._settings.tiers.get(attempt.request.tier),
            attempt,
            tools=bool(self._exchange.request.tools),
            began=now,
            streams=bool(attempt.request.body.get("stream")),
            silent_until=silent_until(self._exchange, self._settings),
        )
        self.look_soon()

    def note_bytes(self, now: float) -> None:
        """Record that bytes arrived; if a limit may now be due earlier, check soon.

        Limits that move later cost nothing per chunk: the next check sees that they have moved.
        """
        if self._deadlines is not None and self._deadlines.note_bytes(now):
            self.look_soon()

    def end_call(self) -> None:
        """Record that the call, or the wait for its turn, is over."""
        self._deadlines = None
        self._opinion_until = math.inf
        if self._health_question is not None:
            self._health_question.cancel()
            self._health_question = None

    def look(self, now: float) -> Verdict | float:
        deadlines = self._deadlines
        if impatient := out_of_patience(self._exchange, now):
            finished = deadlines is not None and deadlines.attempt.finished
            return LEFT_OPEN if finished else impatient
        if now >= self._opinion_until:
            return Failure("timeout", "no second opinion in time", fault="nobody")
        if self._answer.busy:
            return self._check_busy(now, deadlines)
        due = min(self._exchange.request.due or math.inf, self._opinion_until)
        if deadlines is not None:
            if verdict := deadlines.check(now) or self._hang_timeout(deadlines, now):
                return verdict
            if deadlines.begin_asking(now):
                self._health_question = asyncio.ensure_future(self._ask_health(deadlines))
            due = min(due, deadlines.due())
        if now >= (sign := self._next_sign_at()) and not self._answer.encoding:
            self._answer.send_sign_of_life(now)
            sign = self._next_sign_at()
        return min(due, sign)

    def _next_sign_at(self) -> float:
        """Return when the next keepalive to the client is due; infinity: never."""
        stream, request = self._settings.stream, self._exchange.request
        if not stream.keepalive_seconds or not request.stream:
            return math.inf
        due = self._answer.last_write + stream.keepalive_seconds
        first = request.dialect.first_keepalive if request.dialect is not None else None
        by_hand = stream.keepalive_seconds != _DEFAULTS.keepalive_seconds
        if first is None or by_hand or self._answer.downstream.started:
            return due
        return max(due, request.started + first)  # the first keepalive commits the status

    def _hang_timeout(self, deadlines: Deadlines, now: float) -> Verdict | None:
        """Return a hanging model's timeout, if no text is out and there is a better alternative."""
        hung = deadlines.hangs(now)
        if hung is None:
            return None
        committed = deadlines.attempt.committed
        text_committed = committed is not None and committed.stays
        return hung if not text_committed and self._leaves_silent(hung, now) else None

    def _check_busy(self, now: float, deadlines: Deadlines | None) -> Verdict | float:
        """While the client reads nothing, ignore silences and check the call's total time only.

        That limit prevents a call from occupying its place on the tier forever.
        """
        self._answer.last_write = now
        if deadlines is None:
            return now + LEAST_SECONDS
        deadlines.pause(now)
        timeout = deadlines.check(now)
        if isinstance(timeout, Failure):
            return replace(timeout, fault="nobody")
        return timeout or now + LEAST_SECONDS

    async def _ask_health(self, deadlines: Deadlines) -> None:
        """Check the health of a silent tier's server, then LiteLLM's, which may hang itself."""
        tier, upstream = self._exchange.tier, self._upstream
        url = self._settings.tiers[tier].health_url
        assert url is not None
        server = await upstream.answers(url, HEALTH_SECONDS)
        direct = tier in self._exchange.request.route.direct
        litellm = direct or not server or await upstream.is_alive(HEALTH_SECONDS)
        deadlines.answered(self._loop.time(), server=server, litellm=litellm)
        self.look_soon()
