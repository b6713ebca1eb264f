"""The rules that the rows of ``next_step.py`` are made of.

Each rule takes a :class:`Situation` and returns a step. A rule that tries something returns None if
the limits, the settings or the text that the client already has forbid it. The functions at the end
say what the client gets when nothing more can be tried; they always return a step.
"""

from __future__ import annotations

from dataclasses import replace

from ..escalation import ladder
from ..escalation.ladder import TierView
from ..frozen import frozen
from ..settings import Settings
from . import hints
from .deadlines import time_left
from .exchange import LASTING, Exchange
from .failures import error_of, refusal
from .guiding import always_guided, form_of_retry, may_guide
from .steps import Deliver, DeliverEarlier, Fail, Move, PassOn, Retry, Step
from .verdicts import (
    EmptyResponse,
    InvalidToolCall,
    LoopDetected,
    Rejected,
    UpstreamFailed,
    Verdict,
    reason_of,
)

BACKOFF_SECONDS = 0.25  # before the first same-tier retry of a server error, doubled each time
JITTER = 0.25  # the largest share of a back-off that is added to it by chance
MAX_OBEYED_RETRY_AFTER = 5.0  # seconds; if a tier asks for more, the next tier is tried
# A retry after a call that hung needs at least this much time. Judgement: a short reply's time.
LEAST_SECONDS = 10.0
# Reasons after which a retry changes the request: by a correction, a hint or another sampling.
# Upstream may refuse the changed request although it took the first one.
RETRY_CHANGES_REQUEST = LASTING - {"timeout", "server_error"}
# Reasons for which the next tier is asked whatever `escalate_on` says: this tier is closed, and not
# to blame.
_ALWAYS = ("tier_degraded", "budget_exceeded")
ANSWER_DIRECTLY = "Answer directly now, without further reasoning."
GO_ON = "Go on: make the next tool call, or give the final answer."


@frozen
class Situation:
    """What a rule decides on: an exchange and the verdict with which its last attempt ended."""

    exchange: Exchange
    verdict: Verdict
    settings: Settings
    view: TierView  # what is known of the tiers
    now: float  # seconds, on the clock of ``exchange.started``

    @property
    def reason(self) -> str:
        """Why the attempt failed, in the words of ``escalate_on``."""
        verdict = self.verdict
        return verdict.reason if isinstance(verdict, UpstreamFailed) else reason_of(verdict) or ""

    @property
    def retried(self) -> int:
        """The number of retries so far on this tier for the same reason."""
        return self.exchange.retried.get(self.reason, 0)

    @property
    def may_add(self) -> bool:
        """Whether another attempt's reply can follow what the client already has.

        After text has gone out, one more attempt may replace a bad tool call or a loop at its end;
        after any other failure none may.
        """
        if not self.exchange.text_is_out:
            return True
        may_end_better = isinstance(self.verdict, (InvalidToolCall, LoopDetected))
        return may_end_better and not self.exchange.text_retried

    def in_time(self, later: float = 0.0) -> bool:
        """Whether there is time for an upstream call to begin ``later`` seconds from now."""
        return later < time_left(self.exchange, self.settings, self.now)

    def within_bounds(self, kept: int = 0) -> bool:
        """Whether time and ``max_attempts`` allow another call, and ``kept`` more after it."""
        max_attempts = self.settings.reliability.escalation.max_attempts
        return self.in_time() and len(self.exchange.attempts) + kept < max_attempts

    @property
    def retries_left(self) -> int:
        """How often this tier may be tried again, whatever failed; a hint's new place is free."""
        retried = [n for reason, n in self.exchange.retried.items() if reason != "client_error"]
        return self.settings.reliability.escalation.max_retries_before_escalate - sum(retried)

    def may_retry(self, *, free: bool = False) -> bool:
        """Whether this tier may be tried again, with one call left for each tier still to come.

        ``free``: ``max_retries_before_escalate`` does not count this retry.
        """
        if self.exchange.tier in self.view.closed or (self.retries_left < 1 and not free):
            return False
        return self.within_bounds(kept=len(self.later()))

    def later(self, *, local: bool = False) -> list[str]:
        """The later tiers that could take the request, in order; ``local``: only this machine's."""
        return ladder.following(self.exchange, self.settings, self.view, local=local)

    def may_leave(self, reason: str = "") -> bool:
        """Whether another tier may be asked for this reason (default: the verdict's)."""
        reason = reason or self.reason
        escalate_on = self.settings.reliability.escalation.escalate_on
        return (reason in _ALWAYS or reason in escalate_on) and self.within_bounds()

    def next_tier(self, reason: str = "", *, local: bool = False) -> str | None:
        return next(iter(self.later(local=local)), None) if self.may_leave(reason) else None

    def move(self, tier: str | None, reason: str = "") -> Move | None:
        """Return a move to ``tier``, with the hint that it needs; None if ``tier`` is None."""
        if tier is None:
            return None
        # The next tier needs a correction only if the client already has text of the bad reply,
        # for its own reply follows that text.
        invalid = isinstance(self.verdict, InvalidToolCall)
        correct = invalid and self.exchange.text_is_out
        state = (self.exchange, self.settings, self.view, tier)
        guided = may_guide(*state) if self.doubts_text else always_guided(*state)
        return Move(tier, reason or self.reason, hint=self.hint, correct=correct, guided=guided)

    def retry_in_form(self, number: int, *, last: bool = False) -> Retry:
        """Return a retry after a bad call or a text that may hold one, in the form that is due."""
        form = form_of_retry(self.exchange, self.settings, self.view)
        words = form.words and self.settings.reliability.tool_validation.retry_with_correction
        return Retry(self.reason, number, words, last=last, guided=form.guided, warmer=form.warmer)

    @property
    def doubts_text(self) -> bool:
        """Whether the verdict is a doubt whether the reply's text holds a call."""
        return isinstance(self.verdict, InvalidToolCall) and self.verdict.doubts_text

    @property
    def hint(self) -> str:
        """The hint for the next tier: that of the loop, even if a server failed after the loop."""
        match self.verdict:
            case LoopDetected(doubt=False):
                return self.verdict.hint
            case Rejected():
                return self.exchange.hint
            case UpstreamFailed():
                model_failure = self.exchange.model_failure
                return model_failure.hint if isinstance(model_failure, LoopDetected) else ""
            case _:
                return ""

    @property
    def failed(self) -> UpstreamFailed:
        """The verdict. Only for rules in rows where upstream failed."""
        assert isinstance(self.verdict, UpstreamFailed)
        return self.verdict


# What is tried


def retry_corrected(situation: Situation) -> Retry | None:
    """Retry, and tell the model what was wrong with its call."""
    rules, number = situation.settings.reliability.tool_validation, situation.retried + 1
    if number > rules.max_retries or not situation.may_add or not situation.may_retry():
        return None
    last = number == rules.max_retries or situation.retries_left == 1
    return situation.retry_in_form(number, last=last)


def retry_asking(situation: Situation) -> Retry | None:
    """Retry, and ask the model whether it meant its reply; only as this tier's first retry.

    Whether a text holds a call is asked by a schema that takes a call or an answer; that is worth a
    further retry.
    """
    rules, exchange = situation.settings.reliability.tool_validation, situation.exchange
    if not rules.max_retries or not situation.may_retry():
        return None
    state = (exchange, situation.settings, situation.view, exchange.tier)
    unasked = situation.doubts_text and not exchange.guided_on_tier and may_guide(*state)
    if exchange.retried and not unasked:
        return None
    if situation.doubts_text:
        return situation.retry_in_form(situation.retried + 1)
    return Retry(situation.reason, 1, correct=rules.retry_with_correction)


def retry_unguided(situation: Situation) -> Retry | None:
    """Make the same attempt without its schema, which the tier refuses; it counts as no retry."""
    step = situation.exchange.steps[-1] if situation.exchange.steps else None
    if not situation.in_time():
        return None
    if not isinstance(step, Retry):
        return Retry("client_error", 1)
    words = situation.settings.reliability.tool_validation.retry_with_correction
    return Retry(step.reason, step.number, words, last=step.last)


def retry_once(situation: Situation, hint: str = "") -> Retry | None:
    """Retry once: another sampling may end better."""
    if situation.retried or not situation.may_add or not situation.may_retry():
        return None
    return Retry(situation.reason, 1, last=True, hint=hint or situation.hint)


def retry_for_answer(situation: Situation) -> Retry | None:
    """Retry once, and tell the model to answer without further reasoning."""
    return retry_once(situation, ANSWER_DIRECTLY)


def retry_for_more(situation: Situation) -> Retry | None:
    """Retry once in the exchange, and ask for the next call or an answer."""
    return None if _silent_tiers(situation) else retry_once(situation, GO_ON)


def next_tier_for_more(situation: Situation) -> Move | None:
    """Ask one more tier; if two are silent, there is nothing more to say."""
    others = _silent_tiers(situation) - {situation.exchange.tier}
    return None if others else next_tier(situation)


def _silent_tiers(situation: Situation) -> set[str]:
    """Return the tiers that ended their turn without a word before, in this exchange."""
    earlier = situation.exchange.outcomes[:-1]
    return {
        outcome.tier
        for outcome in earlier
        if isinstance(outcome.verdict, EmptyResponse) and outcome.verdict.ended
    }


def retry_plain(situation: Situation) -> Retry | None:
    """Retry once without any words of ours, because the model has only repeated them."""
    retry = retry_once(situation)
    return retry and replace(retry, hint="", plain=True)


def retry_later(situation: Situation) -> Retry | None:
    """Retry after a back-off, or after the server's Retry-After if that is longer, but short."""
    failed, retries = situation.failed, situation.retried
    if failed.final or not situation.may_add or not situation.may_retry():
        return None
    if situation.exchange.tier in situation.view.passed_over and situation.next_tier():
        return None  # the tier's breaker has opened: the next tier needs no back-off
    retry_after = failed.retry_after or 0.0
    after = max(BACKOFF_SECONDS * 2**retries, retry_after)
    if retry_after > MAX_OBEYED_RETRY_AFTER or not situation.in_time(after * (1 + JITTER)):
        return None
    last, guided = situation.retries_left == 1, situation.exchange.guided
    return Retry(situation.reason, retries + 1, last=last, after=after, guided=guided)


def retry_hung(situation: Situation) -> Retry | None:
    """Retry once after a timeout, if the tier is known to answer.

    Then the call hung, not the server. For a server that may be dead there is no retry, so that it
    costs the client one timeout, not two.
    """
    failed = situation.failed
    if failed.blameless or failed.final or situation.exchange.tier not in situation.view.proven:
        return None
    return retry_once(situation) if situation.in_time(LEAST_SECONDS) else None


def retry_in_tool_result(situation: Situation) -> Retry | None:
    """Retry with our words inside a tool's result, where every chat template takes them."""
    tier = situation.settings.tiers.get(situation.exchange.tier)
    in_tool_result = situation.exchange.hint_in_tool_result
    may_help = hints.placement_on(tier, in_tool_result=in_tool_result) == "user"
    if not (situation.failed.about_ours and may_help and situation.may_retry(free=True)):
        return None
    return Retry("client_error", 1, last=True, hint_in_tool_result=True)


def leave_for_first_failure(situation: Situation) -> Move | Fail | None:
    """If upstream refuses a retry, go on as after the failure before it: move to a tier, or fail.

    The tier took the first request, so the refusal is about what the retry has changed.
    """
    reason = next(
        (cause for cause in situation.exchange.retried if cause in RETRY_CHANGES_REQUEST), ""
    )
    if not reason:
        return None
    tier = None if situation.exchange.text_is_out else situation.next_tier(reason)
    return situation.move(tier, reason) or error(situation)


def next_tier(situation: Situation) -> Move | None:
    return situation.move(situation.next_tier()) if situation.may_add else None


def next_local_tier(situation: Situation) -> Move | None:
    """Move to a tier of this machine: a full queue or a spent budget must not cost cloud money."""
    return situation.move(situation.next_tier(local=True)) if situation.may_add else None


def next_tier_at_a_guess(situation: Situation) -> Move | None:
    """Move to this machine's next tier, if it is not degraded and no text is out.

    The conditions are strict because the failure is only a guess.
    """
    if situation.exchange.text_is_out:
        return None
    tier = situation.next_tier(local=True)
    return None if tier in situation.view.passed_over else situation.move(tier)


def larger_tier(situation: Situation) -> Move | None:
    if not situation.may_add or not situation.may_leave():
        return None
    return situation.move(
        ladder.larger(
            situation.exchange, situation.settings, situation.view, situation.failed.window
        )
    )


def tier_elsewhere(situation: Situation) -> Move | None:
    """Move to a tier that doesn't stand behind the LiteLLM that couldn't be reached.

    That is a cloud tier which is called directly; from such a tier, any next one.
    """
    route = situation.exchange.route
    if situation.exchange.tier in route.direct:
        return next_tier(situation)
    view = situation.view.without(set(route.tiers) - route.direct)
    return next_tier(
        Situation(situation.exchange, situation.verdict, situation.settings, view, situation.now)
    )


def deliver_call_of_text(situation: Situation) -> Deliver | None:
    """Deliver the call that a doubted text became, if it is only doubted itself."""
    doubt = situation.exchange.second_opinion_on
    of_text = isinstance(doubt, InvalidToolCall) and doubt.doubts_text
    loop = situation.verdict
    return Deliver() if of_text and isinstance(loop, LoopDetected) and loop.doubt else None


def deliver_confirmed(situation: Situation) -> Deliver | None:
    """Deliver a repetition that two tiers agreed on before, in an earlier request of the run."""
    loop = situation.verdict
    agreed = isinstance(loop, LoopDetected) and loop.confirmable and loop.confirmed
    return Deliver() if agreed else None


def deliver_agreed(situation: Situation) -> Deliver | None:
    """Deliver if two tiers want the same calls: the model may have a reason to wait and repeat."""
    loop, earlier = situation.verdict, situation.exchange.model_failure
    if not isinstance(loop, LoopDetected) or not isinstance(earlier, LoopDetected):
        return None
    same = loop.confirmable and loop.calls == earlier.calls
    other_tier = situation.exchange.failed_on != situation.exchange.tier
    return Deliver() if same and other_tier and situation.may_add else None


# What the client gets at last


def deliver(situation: Situation) -> Deliver:
    return Deliver()


def deliver_earlier(situation: Situation) -> DeliverEarlier:
    """The second opinion failed: deliver the first reply, and don't ask again."""
    assert situation.exchange.doubted is not None
    return DeliverEarlier(situation.exchange.doubted)


def deliver_if_wished(situation: Situation) -> Step:
    wished = situation.settings.reliability.tool_validation.on_exhausted == "return_last"
    return Deliver() if wished else error(situation)


def error(situation: Situation) -> Fail:
    return Fail(error_of(situation.exchange, situation.verdict))


def upstreams_answer(situation: Situation) -> PassOn | Fail:
    failed = situation.failed
    if failed.status is None:  # the error came within a stream
        text = failed.body.decode("utf-8", "replace") or failed.message
        return Fail(refusal(situation.exchange, 400, failed.message, text))
    # Some servers report a fault of the request with a 500; the client gets a 400.
    status = failed.status if failed.status < 500 else 400
    return PassOn(status, failed.headers, failed.body)
