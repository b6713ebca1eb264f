"""The input of the rules in ``rules.py``: an exchange, its last verdict, and the tiers' states."""

from __future__ import annotations

from msgspec import Struct

from ..engine.deadlines import time_left
from ..engine.exchange import Exchange
from ..engine.steps import Move, Retry
from ..engine.tier_view import TierView
from ..engine.verdicts import Failure, InvalidToolCall, LoopDetected, Verdict, reason_of
from ..escalation import ladder
from ..settings import Settings
from ..wire import thoughts
from .guiding import always_guided, may_guide, obeys, repeats_bad_reply

# Reasons for which the next tier is asked whatever `escalate_on` says: this tier is closed, not at
# fault.
_ALWAYS = ("tier_degraded", "budget_exceeded")
# Reasons of retries that only change the request's form, so that the tier accepts it.
_FREE = ("client_error", "context_overflow")


class Situation(Struct, frozen=True):
    """The input of a rule: an exchange and the verdict on its last attempt."""

    exchange: Exchange
    verdict: Verdict
    settings: Settings
    view: TierView  # the tiers' states
    now: float  # seconds, on the clock of ``request.started``

    @property
    def reason(self) -> str:
        """Why the attempt failed, in the terms of ``escalate_on``."""
        verdict = self.verdict
        return verdict.reason if isinstance(verdict, Failure) else reason_of(verdict) or ""

    @property
    def retried(self) -> int:
        """The number of retries so far on this tier for the same reason."""
        return self.exchange.retried.get(self.reason, 0)

    @property
    def may_add(self) -> bool:
        """Whether another attempt's reply can follow what the client already has.

        After text has gone out, one more attempt may replace a bad tool call or a loop at its end,
        or give the answer after mere reasoning; after any other failure none may.
        """
        if not self.exchange.text_committed:
            return True
        committed = self.exchange.committed
        thoughts_out = committed is not None and thoughts.are_all(committed.text)
        may_end_better = isinstance(self.verdict, (InvalidToolCall, LoopDetected)) or (
            self.reason == "empty_response" and thoughts_out
        )
        return may_end_better and not self.exchange.text_retried

    def in_time(self, later: float = 0.0) -> bool:
        """Whether an upstream call can begin ``later`` seconds from now."""
        return later < time_left(self.exchange, self.settings, self.now)

    def within_bounds(self, kept: int = 0) -> bool:
        """Whether time and ``max_attempts`` allow another call, and ``kept`` more after it."""
        max_attempts = self.settings.reliability.escalation.max_attempts
        return self.in_time() and len(self.exchange.attempts) + kept < max_attempts

    @property
    def retries_left(self) -> int:
        """How often this tier may be retried, for any reason; a changed form is free."""
        retried = [n for reason, n in self.exchange.retried.items() if reason not in _FREE]
        return self.settings.reliability.escalation.max_retries_before_escalate - sum(retried)

    def may_retry(self, *, free: bool = False) -> bool:
        """Whether this tier may be tried again, with one call left for each tier still to come.

        ``free``: ``max_retries_before_escalate`` does not count this retry.
        """
        if self.exchange.tier in self.view.closed or (self.retries_left < 1 and not free):
            return False
        return self.within_bounds(kept=len(self.later()))

    def later(self, *, local: bool = False) -> list[str]:
        """The later tiers that can take the request, in order. ``local``: only this machine's."""
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
        # which its own reply continues.
        invalid = isinstance(self.verdict, InvalidToolCall)
        correct = invalid and self.exchange.text_committed
        state = (self.exchange, self.settings, self.view, tier)
        guided = may_guide(*state) if self.doubts_text else always_guided(*state)
        return Move(tier, reason or self.reason, hint=self.hint, correct=correct, guided=guided)

    def retry_in_form(self, number: int, *, last: bool = False) -> Retry:
        """Return the next form of retry after a bad call, or a text that may hold one.

        Guided comes first, without words if the tier is known to obey; then words. If the same
        reply comes again, the words made the model copy it: the next retry has none, and the one
        after that is warmer.
        """
        exchange, tier = self.exchange, self.exchange.tier
        guided = may_guide(exchange, self.settings, self.view, tier)
        obeyed = guided and obeys(self.settings.tiers[tier], tier, self.view)
        words, warmer = True, False
        if guided and not exchange.guided_on_tier:
            words = not obeyed
        else:
            guided = obeyed
            if repeats_bad_reply(exchange):
                newest = exchange.steps[-1] if exchange.steps else None
                words, warmer = False, not getattr(newest, "correct", False)
        words = words and self.settings.reliability.tool_validation.retry_with_correction
        return Retry(self.reason, number, words, last=last, guided=guided, warmer=warmer)

    @property
    def doubts_text(self) -> bool:
        """Whether the doubt is whether the reply's text holds a call."""
        return isinstance(self.verdict, InvalidToolCall) and self.verdict.doubts_text

    @property
    def hint(self) -> str:
        """The hint for the next tier: that of a loop, even if a server failed after it."""
        match self.verdict:
            case LoopDetected(doubt=False):
                return self.verdict.hint
            case Failure(kind="rejected" | "tier_rejected"):
                return self.exchange.hint
            case Failure(answered=False):
                model_failure = self.exchange.model_failure
                return model_failure.hint if isinstance(model_failure, LoopDetected) else ""
            case _:
                return ""

    @property
    def failed(self) -> Failure:
        """The verdict. Only for rules in rows where upstream failed."""
        assert isinstance(self.verdict, Failure)
        return self.verdict
