"""What can be tried after a failure, and what the client gets at last.

Each function here looks at a :class:`Situation` and gives a step, or None where the bounds, the
settings or what is out already forbid it. ``next_step.py`` says which are asked after what.
"""

from __future__ import annotations

from ..escalation import ladder
from ..escalation.ladder import TierView
from ..frozen import frozen
from ..settings import Settings
from . import hints
from .deadlines import time_left
from .exchange import LASTING, Exchange
from .failures import error_of, refusal
from .steps import Deliver, DeliverEarlier, Fail, Move, PassOn, Retry, Step
from .verdicts import (
    InvalidToolCall,
    LoopDetected,
    Rejected,
    UpstreamFailed,
    Verdict,
    reason_of,
)

BACKOFF_SECONDS = 0.25  # before the first same-tier retry of a server error, doubled each time
JITTER = 0.25  # of a back-off, at most, added to it
MAX_OBEYED_RETRY_AFTER = 5.0  # a tier that asks for more is left
# A call that has hung is not worth another one where less is left. Judgement: a short reply's time.
LEAST_SECONDS = 10.0
# Failures that a tier's model is to blame for, not its server.
MODELS_OWN = LASTING - {"timeout", "server_error"}
# Reasons for which a tier is left whatever `escalate_on` says: it is closed, and not to blame.
_ALWAYS = ("tier_degraded", "budget_exceeded")
ANSWER_DIRECTLY = "Answer directly now, without further reasoning."


@frozen
class Situation:
    """What a rule looks at: an exchange whose last attempt ended with this verdict.

    ``view``: what is known of the tiers. ``now``: on the clock of ``exchange.started``.
    """

    exchange: Exchange
    verdict: Verdict
    settings: Settings
    view: TierView
    now: float

    @property
    def reason(self) -> str:
        """Why the attempt failed, as `escalate_on` has it."""
        verdict = self.verdict
        return verdict.reason if isinstance(verdict, UpstreamFailed) else reason_of(verdict) or ""

    @property
    def retried(self) -> int:
        """Retries so far on this tier for the same reason."""
        return self.exchange.retried.get(self.reason, 0)

    @property
    def may_add(self) -> bool:
        """Whether what another attempt brings can join what the client has.

        After text only a better ending of it can, which a bad call or a loop may still get; once.
        """
        if not self.exchange.text_is_out:
            return True
        may_end_better = isinstance(self.verdict, (InvalidToolCall, LoopDetected))
        return may_end_better and not self.exchange.text_retried

    def in_time(self, later: float = 0.0) -> bool:
        """Whether an upstream call may still begin, ``later`` seconds from now."""
        return later < time_left(self.exchange, self.settings, self.now)

    def within_bounds(self, kept: int = 0) -> bool:
        """Whether another upstream call is allowed that leaves ``kept`` more."""
        most = self.settings.reliability.escalation.max_attempts
        return self.in_time() and len(self.exchange.attempts) + kept < most

    def may_retry(self) -> bool:
        """Same-tier retries leave one call for each tier still to come."""
        closed = self.exchange.tier in self.view.closed
        return not closed and self.within_bounds(kept=len(self.later()))

    def later(self, *, local: bool = False) -> list[str]:
        """The tiers that could take the request, in order."""
        return ladder.following(self.exchange, self.settings, self.view, local=local)

    def may_leave(self, reason: str = "") -> bool:
        """Whether another tier may be asked at all."""
        reason = reason or self.reason
        wanted = self.settings.reliability.escalation.escalate_on
        return (reason in _ALWAYS or reason in wanted) and self.within_bounds()

    def next_tier(self, reason: str = "", *, local: bool = False) -> str | None:
        return next(iter(self.later(local=local)), None) if self.may_leave(reason) else None

    def move(self, tier: str | None, reason: str = "") -> Move | None:
        """On to a tier, with what it has to be told; None where there is none."""
        if tier is None:
            return None
        # A fresh tier needs no correction, but what the client has already read it must know.
        invalid = isinstance(self.verdict, InvalidToolCall)
        correct = invalid and self.exchange.text_is_out
        return Move(tier, reason or self.reason, hint=self.hint, correct=correct)

    @property
    def hint(self) -> str:
        """What the next tier is told: a loop's hint, also where a server failed after it."""
        match self.verdict:
            case LoopDetected(doubt=False):
                return self.verdict.hint
            case Rejected():
                return self.exchange.hint
            case UpstreamFailed():
                own = self.exchange.model_failure
                return own.hint if isinstance(own, LoopDetected) else ""
            case _:
                return ""

    @property
    def failed(self) -> UpstreamFailed:
        """The verdict, in the rows of failures of upstream."""
        assert isinstance(self.verdict, UpstreamFailed)
        return self.verdict


# What is tried


def retry_corrected(at: Situation) -> Retry | None:
    """The same tier, told what was wrong with its call."""
    rules, number = at.settings.reliability.tool_validation, at.retried + 1
    if number > rules.max_retries or not at.may_add or not at.may_retry():
        return None
    last = number == rules.max_retries
    return Retry(at.reason, number, correct=rules.retry_with_correction, last=last)


def retry_asking(at: Situation) -> Retry | None:
    """The same tier, asked whether it meant what it said; if no retry was needed before."""
    rules = at.settings.reliability.tool_validation
    if at.exchange.retried or not rules.max_retries or not at.may_retry():
        return None
    return Retry(at.reason, 1, correct=rules.retry_with_correction)


def retry_once(at: Situation, hint: str = "") -> Retry | None:
    """The same tier, for another sampling may end better."""
    if at.retried or not at.may_add or not at.may_retry():
        return None
    return Retry(at.reason, 1, last=True, hint=hint or at.hint)


def retry_for_answer(at: Situation) -> Retry | None:
    """The same tier, told to think no more."""
    return retry_once(at, ANSWER_DIRECTLY)


def retry_empty(at: Situation) -> Retry | None:
    """The same tier, unless the settings know no retries."""
    return retry_once(at) if _most_retries(at) else None


def retry_later(at: Situation) -> Retry | None:
    """The same tier after a back-off, or as long as its server asks for, if that is short."""
    failed, done = at.failed, at.retried
    if failed.final or not at.may_add or done >= _most_retries(at) or not at.may_retry():
        return None
    if at.exchange.tier in at.view.passed_over and at.next_tier():
        return None  # its breaker has opened meanwhile: nobody has to wait for it
    asked = failed.retry_after or 0.0
    after = max(BACKOFF_SECONDS * 2**done, asked)
    if asked > MAX_OBEYED_RETRY_AFTER or not at.in_time(after * (1 + JITTER)):
        return None
    return Retry(at.reason, done + 1, last=done + 1 == _most_retries(at), after=after)


def retry_hung(at: Situation) -> Retry | None:
    """The same tier once more, if it has answered before and failed only now.

    Then that call hung, not the server. A dead server costs the client one timeout, not two.
    """
    failed = at.failed
    if failed.blameless or failed.final or at.exchange.tier not in at.view.proven:
        return None
    return retry_once(at) if at.in_time(LEAST_SECONDS) else None


def retry_in_tool_result(at: Situation) -> Retry | None:
    """The same tier, with words of ours in a tool's result, where any template takes them."""
    tier = at.settings.tiers.get(at.exchange.tier)
    in_tool_result = at.exchange.hint_in_tool_result
    may_help = hints.placement_on(tier, in_tool_result=in_tool_result) == "user"
    if not (at.failed.about_ours and may_help and at.may_retry()):
        return None
    return Retry("client_error", 1, last=True, hint_in_tool_result=True)


def leave_for_first_failure(at: Situation) -> Move | Fail | None:
    """The next tier, or the error, of the failure before.

    The tier took this request before: it refuses what the retry added to it.
    """
    reason = next((one for one in at.exchange.retried if one in MODELS_OWN), "")
    if not reason:
        return None
    tier = None if at.exchange.text_is_out else at.next_tier(reason)
    return at.move(tier, reason) or error(at)


def next_tier(at: Situation) -> Move | None:
    return at.move(at.next_tier()) if at.may_add else None


def next_local_tier(at: Situation) -> Move | None:
    """Never the cloud: what a queue or a budget is to save is not to be spent there."""
    return at.move(at.next_tier(local=True)) if at.may_add else None


def next_tier_at_a_guess(at: Situation) -> Move | None:
    """One of this machine that isn't degraded, before any text: the failure is but a guess."""
    if at.exchange.text_is_out:
        return None
    tier = at.next_tier(local=True)
    return None if tier in at.view.passed_over else at.move(tier)


def larger_tier(at: Situation) -> Move | None:
    if not at.may_add or not at.may_leave():
        return None
    return at.move(ladder.larger(at.exchange, at.settings, at.view, at.failed.window))


def tier_elsewhere(at: Situation) -> Move | None:
    """A cloud tier that is called directly: all others are behind the same LiteLLM."""
    route = at.exchange.route
    if at.exchange.tier in route.direct:
        return next_tier(at)
    view = at.view.without(set(route.tiers) - route.direct)
    return next_tier(Situation(at.exchange, at.verdict, at.settings, view, at.now))


def deliver_confirmed(at: Situation) -> Deliver | None:
    """Two tiers agreed on this loop before: the one that is left needs no other's word."""
    loop = at.verdict
    agreed = isinstance(loop, LoopDetected) and loop.confirmable and loop.confirmed
    return Deliver() if agreed else None


def deliver_agreed(at: Situation) -> Deliver | None:
    """Two tiers want the very same calls: it may be a rightful wait."""
    loop, before = at.verdict, at.exchange.model_failure
    if not isinstance(loop, LoopDetected) or not isinstance(before, LoopDetected):
        return None
    same = loop.confirmable and loop.calls == before.calls
    other_tier = at.exchange.failed_on != at.exchange.tier
    return Deliver() if same and other_tier and at.may_add else None


def _most_retries(at: Situation) -> int:
    return at.settings.reliability.escalation.max_retries_before_escalate


# What the client gets at last


def deliver(at: Situation) -> Deliver:
    return Deliver()


def deliver_earlier(at: Situation) -> DeliverEarlier:
    """The second opinion failed: deliver the first reply, and don't ask again."""
    assert at.exchange.doubted is not None
    return DeliverEarlier(at.exchange.doubted)


def deliver_if_wished(at: Situation) -> Step:
    wished = at.settings.reliability.tool_validation.on_exhausted == "return_last"
    return Deliver() if wished else error(at)


def error(at: Situation) -> Fail:
    return Fail(error_of(at.exchange, at.verdict))


def upstreams_answer(at: Situation) -> PassOn | Fail:
    failed = at.failed
    if failed.status is None:  # it came within a stream
        text = failed.body.decode("utf-8", "replace") or failed.message
        return Fail(refusal(at.exchange, 400, failed.message, text))
    # A server that says so with a 500 means the request all the same.
    status = failed.status if failed.status < 500 else 400
    return PassOn(status, failed.headers, failed.body)
