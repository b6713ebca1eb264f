"""Every limit of time, as rules: of a call, of a second opinion, of an exchange.

A call may be silent, or run, for as long as its tier's timeouts say (:class:`Deadlines`). An
exchange ends after ``escalation.exchange_timeout``, or when its client waits no longer, whichever
comes first. ``timers.py`` looks at all of them several times a second; what it finds ends the call,
and ``next_step.py`` says what follows. ``now`` is always on the clock of ``exchange.started``.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field

from ..settings import PASS_THROUGH, Settings, TierSettings
from .exchange import Exchange
from .verdicts import LeftOpen, UpstreamFailed

# After its finish_reason a reply has only its usage and ``[DONE]`` to come. LiteLLM may take
# seconds to count a long text. After that the reply goes out without them.
AFTER_FINISH_SECONDS = 10.0
# Where a tier has a health_url: silence after which the server is asked, and how many questions in
# a row it may leave unanswered.
ASK_AFTER_SECONDS = 20.0
MAX_UNANSWERED = 3
# A second opinion is not worth more, for a reply is there. Judgement: twice the time for which a
# place in a tier's queue is waited for.
OPINION_SECONDS = 120.0
# The share of an exchange's time that a silent tier may take, though its server answers. Of the
# default 540 s it leaves 54 s for the next tier, a little less than its queue is waited for (60 s).
SILENT_SHARE = 0.9


@dataclass(slots=True)
class Deadlines:
    """The time limits of one attempt; all times in seconds on one clock.

    Where the tier has a ``health_url``, silence alone is no timeout: when :meth:`begin_asking` says
    so, the server is to be asked, and LiteLLM before it; :meth:`answered` is told what came of it.
    One that answers may have a model that hangs: after ``silent_until`` a silence beyond the limits
    is one again if :meth:`hangs` says so and the request is better off elsewhere.
    """

    tier: TierSettings | None  # None: a model that passes through
    _: KW_ONLY
    tools: bool  # some are offered
    began: float
    streams: bool = True  # else the answer comes whole, and has no first token before its end
    silent_until: float = math.inf
    _last: float = field(init=False)  # when bytes came
    _sign: float = field(init=False)  # the last sign of life: bytes, or an answer of the server
    _waiting: bool = field(default=True, init=False)  # for the reply's beginning
    _finished: bool = field(default=False, init=False)
    _asking: bool = field(default=False, init=False)
    _unanswered: int = field(default=0, init=False)  # questions in a row
    _litellm_silent: bool = field(default=False, init=False)  # it was LiteLLM that did not answer

    def __post_init__(self) -> None:
        self._last = self._sign = self.began

    def heard(self, now: float, *, begun: bool, finished: bool = False) -> None:
        """Bytes came. Any byte is a sign of life.

        ``begun``: the reply has content by now; ``finished``: it has its finish_reason.
        """
        self._last = self._sign = now
        self._unanswered = 0
        self._waiting = not begun
        self._finished = finished

    def begin_asking(self, now: float) -> bool:
        """Begin to ask the server if it is alive, if that is due; says whether it was due."""
        if self._limits.health_url is None or self._asking or self._finished:
            return False
        if self._unanswered:  # it is asked again at once
            self._asking = self._unanswered < MAX_UNANSWERED
        else:
            self._asking = now >= self._sign + self._long
        return self._asking

    def answered(self, now: float, *, server: bool, litellm: bool = True) -> None:
        """What came of asking: who answered."""
        self._asking = False
        if server and litellm:
            self._sign = now
            self._unanswered = 0
        else:
            self._unanswered += 1
            self._litellm_silent = server

    def hangs(self, now: float) -> UpstreamFailed | None:
        """What a silence beyond the limits is, though the server answers: most likely a hang.

        None: there is no such silence, or whether anybody answers is being found out.
        """
        if now < self._hangs_at:
            return None
        message = f"nothing came for {now - self._last:.0f} s, though the server answers"
        return UpstreamFailed("timeout", message, silent=True)

    def check(self, now: float) -> UpstreamFailed | LeftOpen | None:
        """The limit that has been reached, if any."""
        silent = now >= self._last + self._patience
        over = now >= self.began + self._limits.total_timeout
        if self._finished and (silent or over):
            return LeftOpen()
        if over:
            message = f"no end of the reply within {self._limits.total_timeout:g} s"
            # A model that still writes at the limit would write as long again: no retry.
            writes = now < self._last + self._long
            return UpstreamFailed("timeout", message, final=writes)
        if self._limits.health_url is not None:
            return self._unanswered_timeout(now)
        if not silent:
            return None
        if self._waiting:
            return UpstreamFailed("timeout", f"nothing came within {self._first:g} s")
        return UpstreamFailed("timeout", f"nothing more came for {self._idle:g} s")

    def _unanswered_timeout(self, now: float) -> UpstreamFailed | None:
        if self._unanswered < MAX_UNANSWERED:
            return None
        who = "LiteLLM" if self._litellm_silent else "the server"
        return UpstreamFailed(
            "timeout",
            f"nothing came for {now - self._last:.0f} s, and {who} does not answer",
            blameless=self._litellm_silent,
            final=True,
        )

    @property
    def _hangs_at(self) -> float:
        if self._limits.health_url is None or self._finished or self._unanswered:
            return math.inf
        return max(self.silent_until, self._last + self._patience)

    @property
    def _limits(self) -> TierSettings:
        return self.tier or PASS_THROUGH

    @property
    def _first(self) -> float:
        limits = self._limits
        if not self.streams:
            return limits.total_timeout
        return max(limits.first_token_timeout, limits.tool_silence_timeout if self.tools else 0.0)

    @property
    def _idle(self) -> float:
        limits = self._limits
        return max(limits.idle_timeout, limits.tool_silence_timeout if self.tools else 0.0)

    @property
    def _patience(self) -> float:
        if self._finished:
            return min(AFTER_FINISH_SECONDS, self._idle)
        return self._first if self._waiting else self._idle

    @property
    def _long(self) -> float:
        """A silence that may mean something."""
        return min(self._patience, ASK_AFTER_SECONDS)


def out_of_patience(exchange: Exchange, now: float) -> UpstreamFailed | None:
    """What ends an exchange whose client wants no reply any more; it says nothing about a tier."""
    due = exchange.request.due
    return None if due is None or now < due else impatient(exchange.request.patience)


def impatient(seconds: float | None) -> UpstreamFailed:
    """A request is not answered within the ``seconds`` that it gave itself."""
    message = f"no end of the reply within {seconds:g} s, the request's own `timeout`"
    return UpstreamFailed("timeout", message, blameless=True, final=True)


def time_left(exchange: Exchange, settings: Settings, now: float) -> float:
    """Seconds until the exchange, or its client's patience, is over; below 0: it is."""
    return _time_for(exchange, settings) - (now - exchange.started)


def _time_for(exchange: Exchange, settings: Settings) -> float:
    """Seconds that an exchange has, or its client's patience, if that is less."""
    request = exchange.request
    own = settings.reliability.escalation.exchange_timeout
    limits = (own, request.client_timeout, request.patience)
    return min(limit for limit in limits if limit is not None)


def opinion_until(exchange: Exchange, settings: Settings, now: float) -> float:
    """Until when a second opinion is waited for that is asked for now; for any other call for ever.

    A tenth of what is left to the exchange and its client stays for the reply that is there.
    """
    if exchange.second_opinion_on is None:
        return math.inf
    return now + min(OPINION_SECONDS, 0.9 * max(time_left(exchange, settings, now), 0.0))


def silent_until(exchange: Exchange, settings: Settings) -> float:
    """From when on a silent call is left, if something better follows.

    On the clock of ``exchange.started``. Later, another tier would have too little time.
    """
    return exchange.started + SILENT_SHARE * _time_for(exchange, settings)
