"""The time limits of a call, of a second opinion and of an exchange, as rules.

The tier's timeouts bound a call's silences and its duration (:class:`Deadlines`). An exchange ends
after ``escalation.exchange_timeout``, or earlier if its client gives up earlier.
``time_limits.py`` checks the limits when one may be due. A reached limit gives a verdict, which
ends the call; ``next_step.py`` decides what follows. ``now`` is always on the clock of
``request.started``.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field

from ..settings import PASS_THROUGH, Settings, TierSettings
from .attempt import Attempt
from .exchange import Exchange
from .verdicts import LEFT_OPEN, Failure, Verdict

# After the finish_reason, only the usage and `[DONE]` remain. LiteLLM may take seconds to count a
# long text. After this time the reply goes out without them.
AFTER_FINISH_SECONDS = 10.0
AFTER_USAGE_SECONDS = 1.0  # the same once the usage has arrived: only `[DONE]` remains
# If a tier has a `health_url`: seconds of silence before its server's health is checked, and how
# many checks in a row may fail before the call times out.
ASK_AFTER_SECONDS = 20.0
MAX_UNANSWERED = 3
# The longest wait for a second opinion, because the first reply can be delivered. Judgement:
# twice the wait in a tier's queue.
OPINION_SECONDS = 120.0
# The share of an exchange's time that speculation may use: a silent tier whose server answers, or
# a second opinion. Of the default 540 s this leaves 54 s for the next tier, a little less than the
# wait in its queue (60 s).
GUESS_SHARE = 0.9


@dataclass(slots=True)
class Deadlines:
    """The time limits of one call; all times in seconds on one clock.

    If the tier has a ``health_url``, silence alone is no timeout. The owner checks the health of
    the tier's server and of LiteLLM whenever :meth:`begin_asking` returns true, and reports to
    :meth:`answered`; only failed checks make a timeout. A server may answer while its model hangs:
    from ``silent_until`` on, :meth:`hangs` reports a silence beyond the limits, and the owner ends
    the call if there is a better alternative.
    """

    tier: TierSettings | None  # None: a model that passes through
    attempt: Attempt  # its reply grows during the call
    _: KW_ONLY
    tools: bool  # whether the request offers tools
    began: float  # when the call began
    streams: bool = True  # False: the reply is one object, with no first token before its end
    silent_until: float = math.inf  # before this, silence is no hang while the server answers
    _last: float = field(init=False)  # when the last content arrived
    _sign: float = field(init=False)  # the last sign of life: bytes, or a health check's answer
    _pieces: int = field(default=0, init=False)  # pieces of content at that time
    # Whether the reply then had content, a finish_reason for each choice, and its usage.
    _phase: tuple[bool, bool, bool] = field(default=(False, False, False), init=False)
    _asking: bool = field(default=False, init=False)  # a health check is running
    _unanswered: int = field(default=0, init=False)  # failed health checks in a row
    _litellm_silent: bool = field(default=False, init=False)  # LiteLLM failed the last one

    def __post_init__(self) -> None:
        self._last = self._sign = self.began

    def note_bytes(self, now: float) -> bool:
        """Record that bytes arrived; return whether a limit may now be due earlier.

        Any byte is a sign of life, but only content or a finish_reason ends a silence.
        """
        reply, finished = self.attempt.reply, self.attempt.finished
        if reply.pieces != self._pieces or finished is not self._phase[1]:
            self._pieces, self._last = reply.pieces, now
        self._sign, self._unanswered = now, 0
        phase, self._phase = self._phase, (bool(reply.choices), finished, reply.usage is not None)
        return phase != self._phase

    def pause(self, now: float) -> None:
        """Ignore the silence until ``now``, because nothing was read in that time."""
        self._last = self._sign = now
        self._unanswered = 0

    def begin_asking(self, now: float) -> bool:
        """Whether the server's health is to be checked now; if so, record that the check runs."""
        if self._limits.health_url is None or self._asking or self._finished:
            return False
        if self._unanswered:  # check again at once
            self._asking = self._unanswered < MAX_UNANSWERED
        else:
            self._asking = now >= self._sign + self._long_silence
        return self._asking

    def answered(self, now: float, *, server: bool, litellm: bool = True) -> None:
        """Record which of them answered the health check, and when."""
        self._asking = False
        if server and litellm:
            self._sign = now
            self._unanswered = 0
        else:
            self._unanswered += 1
            self._litellm_silent = server

    def hangs(self, now: float) -> Failure | None:
        """Return a timeout if the call is silent beyond its limits though the server answers.

        The model probably hangs. None: the silence is shorter, or a health check has failed.
        """
        if now < self._hang_at:
            return None
        message = f"nothing came for {now - self._last:.0f} s, though the server answers"
        return Failure("silent", message)

    def check(self, now: float) -> Verdict | None:
        """Return the verdict of a limit that has been reached, or None."""
        silent = now >= self._last + self._patience
        over = now >= self.began + self._limits.total_timeout
        if self._finished and (silent or over):
            return LEFT_OPEN
        if over:
            message = f"no end of the reply within {self._limits.total_timeout:g} s"
            # A model that still writes at the limit would take as long again, so there is no retry.
            writes = now < self._last + self._long_silence
            return Failure("timeout", message, final=writes)
        if self._limits.health_url is not None:
            return self._unanswered_timeout(now)
        if not silent:
            return None
        if not self._phase[0]:
            return Failure("timeout", f"nothing came within {self._first_limit:g} s")
        return Failure("timeout", f"nothing more came for {self._idle_limit:g} s")

    def due(self) -> float:
        """Return when to call :meth:`check`, :meth:`hangs` or :meth:`begin_asking` next."""
        over = self.began + self._limits.total_timeout
        if self._finished or self._limits.health_url is None:
            return min(over, self._last + self._patience)
        if self._unanswered:
            return over if self._asking else -math.inf
        ask = math.inf if self._asking else self._sign + self._long_silence
        return min(over, self._hang_at, ask)

    def _unanswered_timeout(self, now: float) -> Failure | None:
        if self._unanswered < MAX_UNANSWERED:
            return None
        silent_server = "LiteLLM" if self._litellm_silent else "the server"
        return Failure(
            "timeout",
            f"nothing came for {now - self._last:.0f} s, and {silent_server} does not answer",
            fault="nobody" if self._litellm_silent else "server",
            final=True,
        )

    @property
    def _finished(self) -> bool:
        return self._phase[1]

    @property
    def _hang_at(self) -> float:
        if self._limits.health_url is None or self._finished or self._unanswered:
            return math.inf
        return max(self.silent_until, self._last + self._patience)

    @property
    def _limits(self) -> TierSettings:
        return self.tier or PASS_THROUGH

    @property
    def _first_limit(self) -> float:
        limits = self._limits
        if not self.streams:
            return limits.total_timeout
        return max(limits.first_token_timeout, limits.tool_silence_timeout if self.tools else 0.0)

    @property
    def _idle_limit(self) -> float:
        limits = self._limits
        return max(limits.idle_timeout, limits.tool_silence_timeout if self.tools else 0.0)

    @property
    def _patience(self) -> float:
        begun, finished, counted = self._phase
        if finished:
            return min(AFTER_USAGE_SECONDS if counted else AFTER_FINISH_SECONDS, self._idle_limit)
        return self._idle_limit if begun else self._first_limit

    @property
    def _long_silence(self) -> float:
        """Seconds of silence before a health check; the model no longer counts as writing."""
        return min(self._patience, ASK_AFTER_SECONDS)


def out_of_patience(exchange: Exchange, now: float) -> Failure | None:
    """Return the timeout of an exchange whose client has given up by its own limit, or None."""
    due = exchange.request.due
    return None if due is None or now < due else impatient(exchange.request.patience)


def impatient(seconds: float | None) -> Failure:
    """Return the timeout of a request that limited itself to ``seconds``; no tier is to blame."""
    message = f"no end of the reply within {seconds:g} s, the request's own `timeout`"
    return Failure("timeout", message, fault="nobody", final=True)


def time_left(exchange: Exchange, settings: Settings, now: float) -> float:
    """Return the seconds until the exchange's or the client's limit; negative after it."""
    return _time_for(exchange, settings) - (now - exchange.request.started)


def _time_for(exchange: Exchange, settings: Settings) -> float:
    """Return the total seconds of the exchange, or the client's own limit if that is shorter."""
    request = exchange.request
    exchange_timeout = settings.reliability.escalation.exchange_timeout
    limits = (exchange_timeout, request.client_timeout, request.patience)
    return min(limit for limit in limits if limit is not None)


def opinion_until(exchange: Exchange, settings: Settings, now: float) -> float:
    """Return until when to wait for a second opinion requested now; infinity for other calls.

    A tenth of the remaining time is reserved for delivering the first reply.
    """
    if exchange.second_opinion_on is None:
        return math.inf
    return now + min(OPINION_SECONDS, GUESS_SHARE * max(time_left(exchange, settings, now), 0.0))


def silent_until(exchange: Exchange, settings: Settings) -> float:
    """Return when a silent call is ended if there is a better alternative.

    It is on the clock of ``request.started``, and leaves time for another tier.
    """
    return exchange.request.started + GUESS_SHARE * _time_for(exchange, settings)
