"""Asks the pure rules with what is known now of the tiers, the queues and the budgets.

``ladder.py`` chooses the tier on which an exchange starts, ``next_step.py`` the step that follows
an attempt. Neither knows whether the cloud's hourly cap has tokens left, for only setting tokens
aside shows it. If the cap refuses the tier they chose, they are asked again without that tier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from ..escalation import ladder
from ..settings import Settings
from ..telemetry import accounts
from ..token_budget.books import Books
from .deadlines import out_of_patience, time_left
from .exchange import Exchange
from .guiding import may_guide
from .next_step import next_step
from .pipeline import Conditions, first_tier
from .services import Services
from .steps import DeliverEarlier, Move, Retry, Start, Step
from .tier_view import TierView
from .verdicts import InvalidToolCall, Rejected, UpstreamFailed, Verdict


@dataclass(slots=True, eq=False)
class Decisions:
    """Decides for one exchange. Times are on the clock of ``exchange.started``."""

    services: Services
    exchange: Exchange
    books: Books

    async def start(self) -> Start | Rejected:
        """Choose the tier to start on; return the refusal if the cloud's cap leaves no tier."""
        while True:
            start = self._choose_start()
            tier = self.services.settings.tiers.get(start.tier)
            if tier is not None and tier.guided == "always":
                start = replace(start, guided=self._may_guide(start.tier))
            asked_before = start.tier in self.books.capped_tiers
            refusal = await self.books.set_aside_for_cloud(start.tier)
            if refusal is None:
                return start
            if asked_before:  # the ladder has no other tier left
                return refusal

    def _may_guide(self, tier: str) -> bool:
        return may_guide(self.exchange, self.services.settings, self._view(), tier)

    def _choose_start(self) -> Start:
        services, books = self.services, self.books
        conditions = Conditions(
            self._view(),
            books.sticky,
            over_budget=books.over_budget,
            over_budget_on=books.spent_tiers if books.downgrades else frozenset(),
            memory_is_short=services.memory.pressure.sustained,
        )
        report = partial(accounts.stage_failed, services)
        return first_tier(services.stages, self.exchange, conditions, report)

    async def next_step(self, exchange: Exchange, now: float) -> Step:
        """Return the step that follows the attempt that has just ended.

        If the step leads to a call into the cloud, set the call's tokens aside, too. A tier that
        the cloud's cap refuses is closed, and the rules are asked again.
        """
        while True:
            view = self._view_after(exchange.outcomes[-1].verdict)
            step = next_step(exchange, self.services.settings, view, now)
            if not isinstance(step, (Retry, Move)):
                return step
            tier = step.tier if isinstance(step, Move) else exchange.tier
            if await self.books.set_aside_for_cloud(tier) is None:
                return step

    async def before_call(self, now: float) -> UpstreamFailed | None:
        """Return why a call that has waited for its turn is not to be made; None: make it."""
        exchange = self.exchange
        failure = after_waiting(exchange, self.services.settings, self._view(), now)
        if failure is None or failure.reason != "tier_degraded":
            return failure
        step = await self.next_step(exchange.ended_with(failure, called=False), now)
        # If the cloud's cap forbids the only other tier, this degraded tier is tried.
        return failure if isinstance(step, Move) else None

    def leaves_silent(self, verdict: UpstreamFailed, now: float) -> bool:
        """Whether to end the running call with this verdict, for something better follows."""
        ended = self.exchange.ended_with(verdict, called=True)
        step = next_step(ended, self.services.settings, self._view_after(verdict), now)
        return isinstance(step, (Move, DeliverEarlier))

    def _view(self) -> TierView:
        """What is known of the tiers now, with those closed that this exchange may not enter."""
        view = self.services.tier_states.view()
        closed = self.books.closed_tiers
        return view.without(closed) if closed else view

    def _view_after(self, verdict: Verdict | None) -> TierView:
        """The view after ``verdict``. If that is but a guess, full tiers count as closed."""
        view = self._view()
        match verdict:
            case InvalidToolCall(ask_next=True) | UpstreamFailed(silent=True):
                tiers = self.exchange.route.tiers
                return view.without(tier for tier in tiers if not self._has_place(tier))
            case _:
                return view

    def _has_place(self, tier: str) -> bool:
        queue = self.services.queues[tier]
        return queue is None or queue.has_room


def after_waiting(
    exchange: Exchange, settings: Settings, view: TierView, now: float
) -> UpstreamFailed | None:
    """Return why a call that has waited for its turn is not to be made; None: make it.

    During the back-off or the wait in the tier's queue, the exchange's time may have run out, or
    the tier's breaker may have opened.
    """
    if impatient := out_of_patience(exchange, now):
        return impatient
    tier = exchange.tier
    if time_left(exchange, settings, now) <= 0:
        tier_settings = settings.tiers.get(tier)
        return UpstreamFailed(
            "tier_busy",
            f"tier {tier}: no free place before the time for this request was over",
            retry_after=tier_settings.queue_timeout if tier_settings is not None else None,
        )
    # Once text is out, the reply can't move to another tier; and the last tier is always tried.
    if tier not in view.passed_over or exchange.text_is_out:
        return None
    if all(other in view.passed_over for other in ladder.following(exchange, settings, view)):
        return None
    return UpstreamFailed("tier_degraded", f"tier {tier} failed while this request waited")
