"""Applies the rules to the current state of the tiers, the queues and the budgets.

The stages choose an exchange's first tier, ``next_step.py`` the step after an attempt. Neither
knows whether the cloud's hourly cap has tokens left, because only reserving tokens shows it. If the
cap refuses the chosen tier, they are asked again without that tier.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from ..engine.deadlines import out_of_patience, time_left
from ..engine.exchange import Exchange
from ..engine.pipeline import first_tier
from ..engine.steps import DeliverEarlier, Move, Retry, Start, Step
from ..engine.tier_view import TierView
from ..engine.verdicts import Failure, InvalidToolCall, Verdict
from ..escalation import ladder
from ..settings import Settings
from ..telemetry import accounts
from .books import Books
from .guiding import may_guide
from .next_step import next_step
from .services import Services


async def start(services: Services, exchange: Exchange, books: Books) -> Start | Failure:
    """Choose the tier to start on; return the refusal if the cloud's cap leaves no tier."""
    settings = services.settings
    while True:
        chosen = _choose_start(services, exchange, books)
        tier = settings.tiers.get(chosen.tier)
        if tier is not None and tier.guided == "always":
            view = _view(services, books)
            chosen = replace(chosen, guided=may_guide(exchange, settings, view, chosen.tier))
        asked_before = chosen.tier in books.capped_tiers
        refusal = await books.reserve_from_cloud_cap(chosen.tier)
        if refusal is None:
            return chosen
        if asked_before:  # the stages have no other tier left
            return refusal


def _choose_start(services: Services, exchange: Exchange, books: Books) -> Start:
    view = _view(services, books)
    known: dict[str, Any] = {
        "sticky": books.sticky,
        "over_budget": books.over_budget,
        "over_budget_on": books.spent_tiers if books.downgrades else frozenset(),
        "memory_is_short": services.memory.pressure.sustained,
    }
    view = replace(view, **known) if any(known.values()) else view
    report = partial(accounts.stage_failed, services)
    return first_tier(services.stages, exchange, view, report)


async def following(services: Services, exchange: Exchange, books: Books, now: float) -> Step:
    """Return the step that follows the attempt that has just ended.

    If the step calls the cloud, reserve the call's tokens, too. A tier that the cloud's cap refuses
    is closed, and the rules are applied again.
    """
    while True:
        view = _view_after(services, exchange, books, exchange.outcomes[-1].verdict)
        step = next_step(exchange, services.settings, view, now)
        if not isinstance(step, (Retry, Move)):
            return step
        tier = step.tier if isinstance(step, Move) else exchange.tier
        if await books.reserve_from_cloud_cap(tier) is None:
            return step


async def before_call(
    services: Services, exchange: Exchange, books: Books, now: float
) -> Failure | None:
    """Return why a call must not be made after its wait, or None."""
    failure = after_waiting(exchange, services.settings, _view(services, books), now)
    if failure is None or failure.kind != "tier_degraded":
        return failure
    ended = exchange.ended_with(failure, called=False)
    step = await following(services, ended, books, now)
    # If the cloud's cap forbids the only other tier, the degraded tier is tried.
    return failure if isinstance(step, Move) else None


def leaves_silent(
    services: Services, exchange: Exchange, books: Books, verdict: Failure, now: float
) -> bool:
    """Whether to end the running call with this verdict, because there is a better alternative."""
    ended = exchange.ended_with(verdict, called=True)
    view = _view_after(services, exchange, books, verdict)
    step = next_step(ended, services.settings, view, now)
    return isinstance(step, (Move, DeliverEarlier))


def _view(services: Services, books: Books) -> TierView:
    """Return the tiers' current states; tiers that this exchange may not use are closed."""
    view = services.tier_states.view()
    closed = books.closed_tiers
    return view.without(closed) if closed else view


def _view_after(
    services: Services, exchange: Exchange, books: Books, verdict: Verdict | None
) -> TierView:
    """Return the view after ``verdict``. After a mere guess, full tiers count as closed."""
    view = _view(services, books)
    match verdict:
        case InvalidToolCall(ask_next=True) | Failure(kind="silent"):
            return view.without(
                t for t in exchange.request.route.tiers if not _has_place(services, t)
            )
        case _:
            return view


def _has_place(services: Services, tier: str) -> bool:
    queue = services.queues[tier]
    return queue is None or queue.has_room


def after_waiting(
    exchange: Exchange, settings: Settings, view: TierView, now: float
) -> Failure | None:
    """Return why a call must not be made after its wait, or None.

    During the back-off or the wait in the tier's queue, the exchange's time may have run out, or
    the tier's breaker may have opened.
    """
    if impatient := out_of_patience(exchange, now):
        return impatient
    tier = exchange.tier
    if time_left(exchange, settings, now) <= 0:
        tier_settings = settings.tiers.get(tier)
        return Failure(
            "tier_busy",
            f"tier {tier}: no free place before the time for this request was over",
            retry_after=tier_settings.queue_timeout if tier_settings is not None else None,
        )
    # Once text is out, the reply can't move to another tier. The last tier is always tried.
    if tier not in view.passed_over or exchange.text_committed:
        return None
    if all(other in view.passed_over for other in ladder.following(exchange, settings, view)):
        return None
    return Failure("tier_degraded", f"tier {tier} failed while this request waited")
