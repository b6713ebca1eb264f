"""What time brings to one exchange: limits on silence, text let out, and signs of life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..escalation.health import Questions
from ..settings import StreamSettings
from .answer import Answer
from .attempt import Attempt
from .deadlines import Deadlines, out_of_patience
from .decisions import Decisions
from .exchange import Exchange
from .services import Services
from .time_left import silent_until
from .verdicts import LeftOpen, UpstreamFailed, Verdict
from .watch import Watch

# How often it is asked whether another tier may have what a silent one doesn't answer: its queue
# may have room by then, or its breaker's time be over. Judgement: some ten times at the defaults.
LOOK_AGAIN_SECONDS = 5.0
_DEFAULTS = StreamSettings()
_NOTHING_YET: tuple[bool, bool, float | None] = (False, False, None)


class Timers:
    """Started with the exchange; a call of upstream :meth:`begin` s and :meth:`end` s in between.

    Times are in seconds on ``clock``, which is the event loop's.
    """

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        *,
        answer: Answer,
        decisions: Decisions,
        watch: Watch,
        clock: Callable[[], float],
    ) -> None:
        self._settings = services.settings
        self._exchange = exchange
        self._answer = answer
        self._decisions = decisions
        self._watch = watch
        stream = services.settings.stream
        self._keepalive = stream.keepalive_seconds if exchange.request.stream else 0.0
        self._no_sign_before = _first_sign(exchange, stream)
        self._questions = Questions(services.upstream, clock)
        self._attempt: Attempt | None = None
        self._deadlines: Deadlines | None = None
        self._timing = _NOTHING_YET

    def start(self) -> None:
        self._watch.start(self._next_due, self._on_time)

    def close(self) -> None:
        self._watch.stop()
        self._questions.close()

    def begin(self, attempt: Attempt, now: float) -> None:
        """An upstream call is made."""
        self._attempt = attempt
        self._timing = _NOTHING_YET
        self._deadlines = Deadlines(
            self._settings.tiers.get(attempt.request.tier),
            tools=bool(self._exchange.request.tools),
            now=now,
            streams=bool(attempt.request.body.get("stream")),
            silent_until=silent_until(self._exchange, self._settings),
        )
        self._watch.rearm()

    def end(self) -> None:
        """It is over."""
        self._deadlines = None

    def heard(self, attempt: Attempt, now: float) -> None:
        """Bytes came, and the attempt has taken them."""
        timing = attempt.timing
        if self._deadlines is not None:
            self._deadlines.heard(now, begun=timing[0], finished=timing[1])
        if timing != self._timing:  # a nearer time than the one waited for may count now
            self._timing = timing
            self._watch.rearm()

    def _next_due(self) -> float | None:
        times = [self._deadlines.next()] if self._deadlines is not None else []
        if (due := self._exchange.request.due) is not None:
            times.append(due)
        if self._keepalive:
            times.append(self._next_sign())
        if self._deadlines is not None and self._attempt is not None:
            release = self._attempt.next_release()
            if release is not None:
                times.append(release)
        return min(times) if times else None

    def _on_time(self, now: float) -> Verdict | None:
        if impatient := out_of_patience(self._exchange, now):
            return LeftOpen() if self._has_finished else impatient
        if self._answer.busy:
            return self._client_is_slow(now)
        out = b""
        if self._deadlines is not None and self._attempt is not None:  # a call is running
            if timeout := self._deadlines.check(now):
                return timeout
            if hung := self._hangs(self._deadlines, self._attempt, now):
                return hung
            if self._deadlines.ask(now):
                self._ask_health(self._deadlines)
            out = self._attempt.tick(now)
            if self._attempt.verdict is not None:
                return self._attempt.verdict
        if out or (self._keepalive and now >= self._next_sign()):
            self._answer.send_later(out, now)
        return None

    def _next_sign(self) -> float:
        """When a sign of life is due."""
        due = self._answer.last_write + self._keepalive
        return due if self._answer.headers_sent else max(due, self._no_sign_before)

    @property
    def _has_finished(self) -> bool:
        """Whether a call is running whose reply has its finish_reason."""
        attempt = self._attempt
        return self._deadlines is not None and attempt is not None and attempt.timing[1]

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
        if self._deadlines is None or self._attempt is None:
            return None
        begun, finished, _ = self._attempt.timing
        self._deadlines.heard(now, begun=begun, finished=finished)
        timeout = self._deadlines.check(now)
        if isinstance(timeout, UpstreamFailed):
            return replace(timeout, blameless=True)
        return timeout

    def _ask_health(self, deadlines: Deadlines) -> None:
        tier = self._settings.tiers[self._exchange.tier]
        assert tier.health_url is not None
        direct = self._exchange.tier in self._exchange.route.direct
        self._questions.ask(deadlines, tier.health_url, direct=direct, then=self._watch.rearm)


def _first_sign(exchange: Exchange, stream: StreamSettings) -> float:
    """The time before which none goes out, for a dialect in which the first one has a price."""
    dialect = exchange.request.dialect
    first = dialect.first_keepalive if dialect is not None else None
    by_hand = stream.keepalive_seconds != _DEFAULTS.keepalive_seconds
    return exchange.started if first is None or by_hand else exchange.started + first
