"""An exchange's way up the tiers, as the rules of ``core`` have it: taken, counted, kept."""

from __future__ import annotations

from ..core import ladder
from ..core.attempt import Attempt
from ..core.breaker import Call
from ..core.budgets import most_asked
from ..core.exchange import Exchange
from ..core.next_step import LASTING, after_waiting
from ..core.verdicts import UpstreamFailed, Verdict
from ..state.store import StoreError
from . import accounts
from .books import Books
from .cloud import Cloud
from .services import Services


async def start(services: Services, exchange: Exchange, books: Books) -> None:
    """Choose the tier to start on."""
    view = services.tier_states.view()
    first = exchange.route.first
    begin = None
    if books.over_budget:
        begin = ladder.downgraded(exchange, services.settings, view)
    if begin is None:
        begin = ladder.start(exchange, services.settings, view, books.sticky)
        exchange.pressure = services.memory.pressure
        away = ladder.relieved(exchange, services.settings, view, begin)
        if away is not None and await _cloud_has_room(services, exchange, away.tier):
            begin = away
    exchange.tier = begin.tier
    if begin.reason:
        await _escalated(services, exchange, first, begin.tier, begin.reason)


async def _cloud_has_room(services: Services, exchange: Exchange, tier: str) -> bool:
    """Whether the cloud's cap lets a request start there.

    What it may use is set aside until its call begins, which sets it aside anew: there is no way
    back from there, so nobody may take it in between.
    """
    if services.cloud is None:
        return True
    seconds = services.settings.tiers[tier].queue_timeout
    most = most_asked(exchange, tier, services.settings)
    return await _reserve(services, services.cloud, exchange, most, seconds) is None


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
    services: Services, cloud: Cloud, exchange: Exchange, attempt: Attempt
) -> UpstreamFailed | None:
    """Keep a climb into the cloud within its cap; who names the tier himself is not held back."""
    if exchange.tier == exchange.route.first:
        return None
    body = attempt.request.body
    most = int(body.get("max_tokens") or body.get("max_completion_tokens") or 0)
    seconds = services.settings.tiers[exchange.tier].total_timeout
    return await _reserve(services, cloud, exchange, most, seconds)


async def _reserve(
    services: Services, cloud: Cloud, exchange: Exchange, most: int, seconds: float
) -> UpstreamFailed | None:
    try:
        return await cloud.reserve(exchange, most, seconds)
    except StoreError as error:
        accounts.store_failed(services, error)
        return None


async def settle(services: Services, cloud: Cloud, exchange: Exchange, attempt: Attempt) -> None:
    """Count what the cloud was asked for, whoever asked."""
    try:
        await cloud.settle(exchange, attempt.reply)
    except StoreError as error:
        accounts.store_failed(services, error)


def begin(services: Services, exchange: Exchange, now: float) -> Call | UpstreamFailed:
    """A call begins, now that it has waited for its turn; or the reason why it doesn't.

    ``now``: on the clock of ``exchange.started``.
    """
    states = services.tier_states
    failure = after_waiting(exchange, services.settings, states.view(), now)
    if failure is not None:
        return failure
    if exchange.route.is_cloud(exchange.tier, services.settings):
        exchange.notes["Cloud"] = "true"
    return states.begin(exchange.tier)


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
