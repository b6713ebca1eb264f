"""What time brings to one exchange: limits on silence, and signs of life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from ..settings import StreamSettings
from .answer import Answer
from .attempt import Attempt
from .deadlines import Deadlines, out_of_patience
from .decisions import Decisions
from .exchange import Exchange
from .services import Services
from .time_left import silent_until
from .upstream import HEALTH_SECONDS
from .verdicts import LeftOpen, UpstreamFailed, Verdict

# How often it is asked whether another tier may have what a silent one doesn't answer: its queue
# may have room by then, or its breaker's time be over. Judgement: some ten times at the defaults.
LOOK_AGAIN_SECONDS = 5.0
_DEFAULTS = StreamSettings()


class Timers:
    """Those of one exchange; a call of upstream :meth:`begin` s and :meth:`end` s in between.

    Times are in seconds on ``clock``, which is the event loop's.
    """

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        *,
        answer: Answer,
        decisions: Decisions,
        clock: Callable[[], float],
    ) -> None:
        self._upstream = services.upstream
        self._settings = services.settings
        self._exchange = exchange
        self._answer = answer
        self._decisions = decisions
        self._clock = clock
        stream = services.settings.stream
        self._keepalive = stream.keepalive_seconds if exchange.request.stream else 0.0
        self._no_sign_before = _first_sign(exchange, stream)
        self._question: asyncio.Task[None] | None = None  # whether a silent server is alive
        self._attempt: Attempt | None = None
        self._deadlines: Deadlines | None = None  # of the call that is running

    def close(self) -> None:
        if self._question is not None:
            self._question.cancel()

    def begin(self, attempt: Attempt, now: float) -> None:
        """An upstream call is made."""
        self._attempt = attempt
        self._deadlines = Deadlines(
            self._settings.tiers.get(attempt.request.tier),
            tools=bool(self._exchange.request.tools),
            now=now,
            streams=bool(attempt.request.body.get("stream")),
            silent_until=silent_until(self._exchange, self._settings),
        )

    def end(self) -> None:
        """It is over."""
        self._deadlines = None
        self.close()

    def heard(self, now: float) -> None:
        """Bytes came, and the attempt has taken them."""
        attempt, deadlines = self._attempt, self._deadlines
        if attempt is not None and deadlines is not None:
            deadlines.heard(now, begun=bool(attempt.reply.choices), finished=attempt.finished)

    def tick(self, now: float) -> Verdict | None:
        """Do what is due; the verdict that ends what is going on."""
        deadlines, attempt = self._deadlines, self._attempt
        if impatient := out_of_patience(self._exchange, now):
            finished = deadlines is not None and attempt is not None and attempt.finished
            return LeftOpen() if finished else impatient
        if self._answer.busy:
            return self._client_is_slow(now)
        if deadlines is not None and attempt is not None:
            if found := deadlines.check(now) or self._hangs(deadlines, attempt, now):
                return found
            if deadlines.ask(now):
                self._question = asyncio.ensure_future(self._ask_health(deadlines))
        if self._keepalive and now >= self._next_sign():
            self._answer.send_sign_of_life(now)
        return None

    def _next_sign(self) -> float:
        """When a sign of life is due."""
        due = self._answer.last_write + self._keepalive
        return due if self._answer.headers_sent else max(due, self._no_sign_before)

    def _hangs(self, deadlines: Deadlines, attempt: Attempt, now: float) -> Verdict | None:
        """A server that answers, and a model that says nothing: the next tier may do better."""
        hung = deadlines.hangs(now)
        if hung is None:
            return None
        committed = attempt.committed
        out = committed is not None and committed.stays
        if not out and self._decisions.ends_silent_call(hung, now):
            return hung
        deadlines.wait_on(now + LOOK_AGAIN_SECONDS)
        return None

    def _client_is_slow(self, now: float) -> Verdict | None:
        """Neither the model nor we are silent; but a place of a tier is not kept for ever."""
        self._answer.last_write = now
        if self._deadlines is None:
            return None
        self.heard(now)
        timeout = self._deadlines.check(now)
        if isinstance(timeout, UpstreamFailed):
            return replace(timeout, blameless=True)
        return timeout

    async def _ask_health(self, deadlines: Deadlines) -> None:
        """Ask a silent tier's server whether it is alive, and LiteLLM, which may hang before it."""
        tier, upstream = self._exchange.tier, self._upstream
        url = self._settings.tiers[tier].health_url
        assert url is not None
        server = await upstream.answers(url, HEALTH_SECONDS)
        direct = tier in self._exchange.route.direct
        litellm = direct or not server or await upstream.is_alive(HEALTH_SECONDS)
        deadlines.answered(self._clock(), server=server, litellm=litellm)


def _first_sign(exchange: Exchange, stream: StreamSettings) -> float:
    """The time before which none goes out, for a dialect in which the first one has a price."""
    dialect = exchange.request.dialect
    first = dialect.first_keepalive if dialect is not None else None
    by_hand = stream.keepalive_seconds != _DEFAULTS.keepalive_seconds
    return exchange.started if first is None or by_hand else exchange.started + first
