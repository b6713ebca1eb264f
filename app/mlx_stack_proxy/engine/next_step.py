"""Every rule about what comes after an attempt: deliver it, try again, move on, or fail.

A pure function of the exchange, the verdict, what is known of the tiers, and the time. The runner
only obeys. `docs/escalation.md` has the same rules as a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from ..escalation import ladder
from ..escalation.ladder import TierView
from ..settings import EscalationReason, Settings
from . import hints
from .deadlines import out_of_patience
from .exchange import Exchange
from .failures import error_of, refusal
from .steps import Deliver, Fail, Move, PassOn, Retry, Step
from .verdicts import (
    Cut,
    EmptyResponse,
    InvalidToolCall,
    LeftOpen,
    LoopDetected,
    OutputTruncated,
    Rejected,
    UpstreamFailed,
    Verdict,
)

BACKOFF_SECONDS = 0.25  # before the first same-tier retry of a server error, doubled each time
JITTER = 0.25  # of a back-off, at most, added to it
MAX_OBEYED_RETRY_AFTER = 5.0  # a tier that asks for more is left
MAX_EMPTY_RETRIES = 1
# Reasons that are likely to hold for a session's next turns too; a full queue soon is not full,
# and what doesn't fit is seen again by its length.
LASTING = frozenset(get_args(EscalationReason)) - {"tier_busy", "context_overflow"}
# … and those that a tier's model is to blame for, not its server.
MODELS_OWN = LASTING - {"timeout", "server_error"}
# A second opinion is not worth more, for a reply is there. Judgement: twice the time for which a
# place in a tier's queue is waited for.
OPINION_SECONDS = 120.0
# A call that has hung is not worth another one where less is left. Judgement: a short reply's time.
LEAST_SECONDS = 10.0
# How much of an exchange's time a tier that says nothing may take, though its server answers. What
# is left has to do for a wait in the next tier's queue: of 540 s it is 54, where 60 are waited for.
SILENT_SHARE = 0.9
ANSWER_DIRECTLY = "Answer directly now, without further reasoning."


def next_step(
    exchange: Exchange, verdict: Verdict | None, settings: Settings, view: TierView, now: float
) -> Step:
    """What to do with an attempt that ended; ``verdict`` None: nothing is wrong with it.

    ``view``: what is known of the tiers. ``now``: seconds, on the clock of ``exchange.started``.
    """
    if verdict is None:
        return Deliver()
    return _Rules(exchange, settings, view, now).step(verdict)


def after_waiting(
    exchange: Exchange, settings: Settings, view: TierView, now: float
) -> UpstreamFailed | None:
    """Why a call is not made, now that it has waited for its turn; None: it is made.

    The back-off or the tier's queue may have taken all the time there was, or as long as it took
    the tier's breaker to open.
    """
    if impatient := out_of_patience(exchange, now):
        return impatient
    tier = exchange.tier
    if _time_left(exchange, settings, now) <= 0:
        known = settings.tiers.get(tier)
        return UpstreamFailed(
            "tier_busy",
            f"tier {tier}: no free place before the time for this request was over",
            retry_after=known.queue_timeout if known is not None else None,
        )
    # Once text is out the reply can't move any more; and the last one standing is always tried.
    if tier not in view.passed_over or exchange.text_is_out:
        return None
    if all(other in view.passed_over for other in ladder.following(exchange, settings, view)):
        return None
    return UpstreamFailed("tier_degraded", f"tier {tier} failed while this request waited")


def time_to_ask(exchange: Exchange, settings: Settings, now: float) -> float | None:
    """How many seconds a second opinion may take in all; None: the attempt to come is none.

    A tenth of what is left to the exchange and its client stays for the reply that is there.
    """
    if exchange.asked_about is None:
        return None
    left = _time_left(exchange, settings, now)
    return min(OPINION_SECONDS, 0.9 * max(left, 0.0))


def silent_until(exchange: Exchange, settings: Settings) -> float:
    """When to ask for the first time whether a silent call is left: see :func:`leaves_silent`.

    On the clock of ``exchange.started``. Not much later no other call could begin.
    """
    return exchange.started + SILENT_SHARE * _time_for(exchange, settings)


def leaves_silent(
    exchange: Exchange, verdict: UpstreamFailed, settings: Settings, view: TierView, now: float
) -> bool:
    """Whether the call that runs is to end with this verdict: something better follows.

    ``view`` without tiers that have no place free: what may yet be answered isn't left for a queue.
    """
    step = _Rules(exchange, settings, view, now, running=1).step(verdict)
    return isinstance(step, (Move, Deliver))


def _time_for(exchange: Exchange, settings: Settings) -> float:
    """Seconds that an exchange has, or its client's patience, if that is less."""
    own = settings.reliability.escalation.exchange_timeout
    limits = (own, exchange.client_timeout, exchange.patience)
    return min(limit for limit in limits if limit is not None)


def _time_left(exchange: Exchange, settings: Settings, now: float) -> float:
    """Seconds until the exchange, or its client's patience, is over; below 0: it is."""
    return _time_for(exchange, settings) - (now - exchange.started)


@dataclass(slots=True)
class _Rules:
    """One decision: what it is about, and the rules by kind of verdict.

    ``running``: upstream calls that are not among the exchange's attempts yet.
    """

    exchange: Exchange
    settings: Settings
    view: TierView
    now: float
    running: int = 0

    def step(self, verdict: Verdict) -> Step:
        if self.exchange.asked_about is not None:
            # The second opinion failed: deliver the first reply, and don't ask again.
            return Deliver(doubted=True)
        match verdict:
            case Cut() | LeftOpen():
                return Deliver()
            case Rejected():
                return self._after_refusal(verdict)
            case UpstreamFailed():
                return self._after_upstream_failure(verdict)
            case InvalidToolCall():
                return self._after_invalid_call(verdict)
            case LoopDetected():
                return self._after_loop(verdict)
            case OutputTruncated():
                return self._after_truncation(verdict)
            case EmptyResponse():
                return self._after_empty_reply(verdict)

    # By kind of verdict

    def _after_refusal(self, verdict: Rejected) -> Step:
        # As with a full queue: what a budget is to save is not to be spent on the cloud.
        may_move = verdict.tier_only and not self.text_is_out and self._within_bounds()
        if may_move and (later := self._later(local=True)):
            return Move(later[0], "budget_exceeded", hint=self.exchange.hint)
        return Fail(error_of(self.exchange, verdict))

    def _after_invalid_call(self, verdict: InvalidToolCall) -> Step:
        exchange = self.exchange
        rules = self.settings.reliability.tool_validation
        reason = "tool_validation_failure"
        done = exchange.retried.get(reason, 0)
        if verdict.doubt:
            return self._ask_again(reason, next_tier=verdict.ask_next)
        # After committed text one retry is all: what it adds can still join what the client has.
        spoilt = self.text_is_out and exchange.text_retried
        if done < rules.max_retries and not spoilt and self._may_retry():
            last = done + 1 == rules.max_retries
            return Retry(reason, done + 1, correct=rules.retry_with_correction, last=last)
        if not spoilt and (tier := self._next_tier(reason)):
            # A fresh tier needs no correction, but what the client has already read it must know.
            return Move(tier, reason, correct=self.text_is_out)
        if rules.on_exhausted == "return_last":
            return Deliver()
        return Fail(error_of(exchange, verdict))

    def _ask_again(self, reason: str, *, next_tier: bool) -> Step:
        """One more attempt about a reply that may be fine, if none was needed before."""
        exchange, rules = self.exchange, self.settings.reliability.tool_validation
        if exchange.doubted:
            return Deliver()
        tier = self._guessed_tier(reason) if next_tier and not self.text_is_out else None
        if tier is not None:
            return Move(tier, reason)
        if exchange.retried or not rules.max_retries or not self._may_retry():
            return Deliver()
        return Retry(reason, 1, correct=rules.retry_with_correction)

    def _after_loop(self, verdict: LoopDetected) -> Step:
        exchange = self.exchange
        reason = "loop_detected"
        if verdict.doubt:
            return self._second_opinion(reason)
        failed = Fail(error_of(exchange, verdict))
        rules = self.settings.reliability.loop_detection
        if rules.on_break != "escalate":
            return failed
        if verdict.believed and verdict.believable:
            return Deliver()  # two tiers agreed on it; the one that is left needs no other's word
        if self.text_is_out and exchange.text_retried:
            return failed
        before = exchange.model_failure
        if (
            isinstance(before, LoopDetected)
            and verdict.believable
            and verdict.calls == before.calls
            and exchange.failed_on != exchange.tier
        ):
            return Deliver()  # two tiers want the very same call: it may be a rightful wait
        if tier := self._next_tier(reason):
            return Move(tier, reason, hint=verdict.hint)
        if not exchange.retried.get(reason) and self._last_rung(reason) and self._may_retry():
            return Retry(reason, 1, last=True, hint=verdict.hint)
        return failed

    def _second_opinion(self, reason: str) -> Step:
        if self.exchange.doubted or self.text_is_out:
            return Deliver()
        tier = self._guessed_tier(reason)
        return Move(tier, reason) if tier else Deliver()

    def _guessed_tier(self, reason: str) -> str | None:
        """The next tier, where the failure is a guess: one of this machine that isn't degraded."""
        tier = self._next_tier(reason, local=True)
        return None if tier in self.view.passed_over else tier

    def _after_truncation(self, verdict: OutputTruncated) -> Step:
        reason = "output_truncated"
        thinking = verdict.limit == "reasoning"
        if not self.text_is_out:
            # The same tier has no more room than it had, but where no other may be asked, another
            # sampling may find an end.
            again = verdict.limit != "unseen" or self._last_rung(reason)
            if again and not self.exchange.retried.get(reason) and self._may_retry():
                hint = ANSWER_DIRECTLY if thinking else ""
                return Retry(reason, 1, last=True, hint=hint)
            if tier := self._next_tier(reason):
                return Move(tier, reason)
        if thinking:
            return Fail(error_of(self.exchange, verdict))
        return Deliver()  # an honest `length` is what is left

    def _after_empty_reply(self, verdict: EmptyResponse) -> Step:
        reason = "empty_response"
        most = min(MAX_EMPTY_RETRIES, self._retries_before_escalate)
        done = self.exchange.retried.get(reason, 0)
        if not self.text_is_out:
            if done < most and self._may_retry():
                return Retry(reason, done + 1, last=done + 1 == most)
            if tier := self._next_tier(reason):
                return Move(tier, reason)
        return Fail(error_of(self.exchange, verdict))

    def _after_upstream_failure(self, verdict: UpstreamFailed) -> Step:
        exchange = self.exchange
        if verdict.reason == "context_overflow":
            return self._after_overflow(verdict)
        if step := self._ours_refused(verdict):
            return step
        if verdict.client_fault:
            return self._clients_own(verdict)
        if self.text_is_out:
            return Fail(error_of(exchange, verdict))
        if verdict.silent:
            tier = self._guessed_tier(verdict.reason)
            if tier is None:
                return Fail(error_of(exchange, verdict))
            return Move(tier, verdict.reason, hint=self._loop_hint)
        if verdict.refused and exchange.tier not in exchange.route.direct:
            # All tiers but the direct ones are behind the same LiteLLM.
            self.view = self.view.without(set(exchange.route.tiers) - exchange.route.direct)
        elif retry := self._retry_of_server_error(verdict):
            return retry
        if tier := self._next_tier(verdict.reason, local=verdict.reason == "tier_busy"):
            return Move(tier, verdict.reason, hint=self._loop_hint)
        return self._last_try(verdict) or Fail(error_of(exchange, verdict))

    def _last_try(self, verdict: UpstreamFailed) -> Retry | None:
        """One more call after a timeout that left no other tier, if it is likely to be answered.

        It is where the tier has answered before and failed only now: that call hung, not the
        server. Who waits for one that is dead waits once.
        """
        reason = "timeout"
        if verdict.reason != reason or verdict.blameless or verdict.final:
            return None
        if self.exchange.tier not in self.view.proven or self.exchange.retried.get(reason):
            return None
        worth_it = self._in_time(LEAST_SECONDS) and self._may_retry()
        return Retry(reason, 1, last=True) if worth_it else None

    def _after_overflow(self, verdict: UpstreamFailed) -> Step:
        """The tier's window is too small; where none is larger, the client has to hear it."""
        may_move = self._wanted(verdict.reason) and not self.text_is_out and self._within_bounds()
        if may_move:
            tier = ladder.larger(self.exchange, self.settings, self.view, verdict.window)
            if tier is not None:
                return Move(tier, verdict.reason, hint=self._loop_hint)
        return self._ours_refused(verdict) or self._clients_own(verdict)

    def _ours_refused(self, verdict: UpstreamFailed) -> Step | None:
        """What follows where the tier refuses what is ours in the request; None: it does not."""
        if not (verdict.client_fault or verdict.about_ours or verdict.reason == "context_overflow"):
            return None
        exchange = self.exchange
        tier = self.settings.tiers.get(exchange.tier)
        placement = hints.placement_on(tier, in_result=exchange.in_result)
        if verdict.about_ours and placement == "user" and self._may_retry():
            return Retry("client_error", 1, last=True, in_result=True)
        if reason := next((one for one in exchange.retried if one in MODELS_OWN), ""):
            # The tier took this request before: it refuses what the retry added to it.
            other = None if self.text_is_out else self._next_tier(reason)
            if other is None:
                return Fail(error_of(exchange, verdict))
            return Move(other, reason, hint=self._loop_hint)
        return None

    def _clients_own(self, verdict: UpstreamFailed) -> Step:
        if verdict.status is None or self.exchange.headers_sent:
            # By keep-alive: what upstream said has to go into the stream.
            text = verdict.body.decode("utf-8", "replace") or verdict.message
            return Fail(refusal(self.exchange, verdict.status or 400, verdict.message, text))
        # A server that says so with a 500 means the request all the same.
        status = verdict.status if verdict.status < 500 else 400
        return PassOn(status, verdict.headers, verdict.body)

    def _retry_of_server_error(self, verdict: UpstreamFailed) -> Retry | None:
        if verdict.reason != "server_error" or verdict.final or verdict.refused:
            return None
        if self.exchange.tier in self.view.passed_over and self._next_tier("server_error"):
            return None  # its breaker has opened meanwhile: nobody has to wait for it
        done = self.exchange.retried.get("server_error", 0)
        most = self._retries_before_escalate
        if done >= most or not self._may_retry():
            return None
        after = BACKOFF_SECONDS * 2**done
        if verdict.retry_after is not None:
            if verdict.retry_after > MAX_OBEYED_RETRY_AFTER:
                return None
            after = max(after, verdict.retry_after)
        if not self._in_time(after * (1 + JITTER)):
            return None
        return Retry("server_error", done + 1, last=done + 1 == most, after=after)

    # What the exchange still allows

    @property
    def text_is_out(self) -> bool:
        return self.exchange.text_is_out

    @property
    def _retries_before_escalate(self) -> int:
        return self.settings.reliability.escalation.max_retries_before_escalate

    @property
    def _loop_hint(self) -> str:
        """What a loop's end has to tell the next tier too, where a server failed in between."""
        own = self.exchange.model_failure
        return own.hint if isinstance(own, LoopDetected) else ""

    def _in_time(self, later: float = 0.0) -> bool:
        """Whether an upstream call may still begin, ``later`` seconds from now."""
        return later < _time_left(self.exchange, self.settings, self.now)

    def _within_bounds(self, kept: int = 0) -> bool:
        """Whether another upstream call is allowed that leaves ``kept`` more."""
        calls = len(self.exchange.attempts) + self.running + kept
        return self._in_time() and calls < self.settings.reliability.escalation.max_attempts

    def _may_retry(self) -> bool:
        """Same-tier retries leave one call for each tier still to come."""
        closed = self.exchange.tier in self.view.closed
        return not closed and self._within_bounds(kept=len(self._later()))

    def _later(self, *, local: bool = False) -> list[str]:
        return ladder.following(self.exchange, self.settings, self.view, local=local)

    def _wanted(self, reason: str) -> bool:
        # That a request goes past a degraded tier is not ``escalate_on``'s to say.
        wanted = self.settings.reliability.escalation.escalate_on
        return reason == "tier_degraded" or reason in wanted

    def _next_tier(self, reason: str, *, local: bool = False) -> str | None:
        if not self._wanted(reason) or not self._within_bounds():
            return None
        return next(iter(self._later(local=local)), None)

    def _last_rung(self, reason: str) -> bool:
        """Whether no other tier may have the request."""
        return not (self._wanted(reason) and self._later())
