"""An exchange's way up the tiers, as the rules of ``core`` have it: taken, counted, kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core import budgets, ladder
from ..core.breaker import Call
from ..core.exchange import Exchange
from ..core.ladder import TierView
from ..core.next_step import LASTING, after_waiting
from ..core.reply import Reply
from ..core.verdicts import UpstreamFailed, Verdict
from ..state.store import StoreError
from . import accounts
from .books import Books
from .cloud import Cloud
from .services import Services


def view_for(services: Services, exchange: Exchange) -> TierView:
    """What is known of the tiers now, for this exchange."""
    view = services.tier_states.view()
    return view.without(exchange.spent) if exchange.spent else view


async def start(services: Services, exchange: Exchange, books: Books) -> None:
    """Choose the tier to start on."""
    view = view_for(services, exchange)
    first = exchange.route.first
    begin = ladder.start(exchange, services.settings, view, books.sticky)
    cheaper = None
    if books.downgrades(begin.tier):
        cheaper = ladder.downgraded(exchange, services.settings, view)
    if cheaper is not None:
        begin = cheaper
    else:
        exchange.pressure = services.memory.pressure
        away = ladder.relieved(exchange, services.settings, view, begin)
        if away is not None and await _cloud_has_room(services, exchange, books, away.tier):
            begin = away
    exchange.tier = begin.tier
    if begin.reason:
        await _escalated(services, exchange, first, begin.tier, begin.reason)


async def _cloud_has_room(services: Services, exchange: Exchange, books: Books, tier: str) -> bool:
    """Whether the cloud's cap lets a request start there.

    What it may use is set aside until its call begins, which sets it aside anew: there is no way
    back from there, so nobody may take it in between.
    """
    if services.cloud is None:
        return True
    seconds = services.settings.tiers[tier].queue_timeout
    most = budgets.most_asked(exchange, tier, services.settings)
    body = {**exchange.request.body, "max_tokens": most}
    return await _reserve(services, services.cloud, body, seconds, books) is None


async def move(services: Services, exchange: Exchange, tier: str, reason: str) -> None:
    """The exchange goes on with another tier."""
    before = exchange.tier
    exchange.retried.clear()
    exchange.climbed = exchange.climbed or reason in LASTING
    exchange.tier = tier
    await _escalated(services, exchange, before, tier, reason)


async def _escalated(
    services: Services, exchange: Exchange, before: str, tier: str, reason: str
) -> None:
    if not exchange.escalated_from:
        exchange.escalated_from = before
        exchange.notes["Escalated-From"] = before
        exchange.notes["Escalation-Reason"] = reason
    services.metrics.inc(services.metrics.escalations, before, tier, reason)
    detail = {"from": before, "to": tier, "reason": reason}
    await accounts.keep(services, exchange, [("escalated", detail)])


async def reserve(
    services: Services, cloud: Cloud, exchange: Exchange, body: Mapping[str, Any], books: Books
) -> UpstreamFailed | None:
    """Keep a climb into the cloud within its cap; who names the tier himself is not held back."""
    if exchange.tier == exchange.route.first:
        return None
    seconds = services.settings.tiers[exchange.tier].total_timeout
    return await _reserve(services, cloud, body, seconds, books)


async def _reserve(
    services: Services, cloud: Cloud, body: Mapping[str, Any], seconds: float, books: Books
) -> UpstreamFailed | None:
    try:
        found = await books.cloud.make(cloud.limits, budgets.most_used(body), seconds)
    except StoreError as error:
        accounts.store_failed(services, error)
        return None
    if found is None:
        return None
    return UpstreamFailed(
        "budget_exceeded",
        f"the cloud's tokens of this hour are used up ({found.used} of {found.limit.most})",
        final=True,
        retry_after=found.resets_in,
    )


async def settle(
    services: Services, cloud: Cloud, exchange: Exchange, reply: Reply, books: Books
) -> None:
    """Count what the cloud was asked for, whoever asked."""
    used = budgets.spent_by(exchange.request, reply, count_cached=True).total
    try:
        await books.cloud.settle(cloud.limits, used, exchange.tier)
    except StoreError as error:
        accounts.store_failed(services, error)


def begin(services: Services, exchange: Exchange, now: float) -> Call | UpstreamFailed:
    """A call begins, now that it has waited for its turn; or the reason why it doesn't.

    ``now``: on the clock of ``exchange.started``.
    """
    view = view_for(services, exchange)
    failure = after_waiting(exchange, services.settings, view, now)
    if failure is not None:
        return failure
    if exchange.route.is_cloud(exchange.tier, services.settings):
        exchange.notes["Cloud"] = "true"
    return services.tier_states.begin(exchange.tier)


async def note_tier(
    services: Services, exchange: Exchange, call: Call, verdict: Verdict | None
) -> None:
    """Tell the tier's breaker how a call ended."""
    try:
        event = await services.tier_states.note(call, verdict, exchange.request)
    except StoreError as error:
        accounts.store_failed(services, error)
        return
    if event is not None:
        await accounts.keep(services, exchange, [(event["kind"], event["detail"])])
