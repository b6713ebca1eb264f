"""What an exchange leaves behind: counters, events, one line in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ..engine.exchange import Exchange
from ..engine.outcome import Incident, Outcome
from ..engine.services import Services
from ..engine.steps import Fail, Move, Retry, Step
from ..engine.verdicts import Rejected
from ..errors import INVALID_REQUEST, ProxyError
from ..state.hourly import Counts, Deltas, HourKey, hour_of
from ..state.store import StoreError
from ..token_budget.budgets import Spent
from . import log
from .exchange_counts import INCIDENTS, RECOVERED, amount_of, counts_of, way_of
from .metrics import OTHER

# Events that belong to no request, and the hour's counter of each.
_COUNTED = {
    "started": "starts",
    "stopped": "stops",
    "config_reloaded": "reloads",
    "config_refused": "refused_reloads",
    "upstream_down": "down",
    "tier_degraded": "down",
}
# These events hold the incident's whole detail: figures, a tool's name, a digest.
_WITH_DETAIL = ("loop_warning", "loop_break")


def tier_label(exchange: Exchange) -> str:
    """The tier's name for a metric; all models that pass through are one."""
    return exchange.tier if exchange.route.tiers else OTHER


def count_end(services: Services, exchange: Exchange, outcome: str) -> Deltas:
    """What the exchange adds to the hour's counters; it also keeps its last events."""
    try:
        found = counts_of(exchange, outcome)
        keep(services, exchange, _told_of_end(exchange, outcome))
    except Exception as error:  # no reason to keep a reply back that was fine
        stage_failed(services, "books", error)
        return {}
    hour, agent = hour_of(services.wall_clock()), exchange.request.agent
    return {HourKey(hour, agent, tier): counts for tier, counts in found.items()}


def _told_of_end(exchange: Exchange, outcome: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of an exchange's end: good news, or that nobody waits for it."""
    recovered = outcome == "ok" and way_of(exchange) in RECOVERED
    if not recovered and outcome != "client_left":
        return []
    seconds = round(asyncio.get_running_loop().time() - exchange.started, 3)
    detail: dict[str, Any] = {"attempts": len(exchange.attempts), "seconds": seconds}
    if not recovered:
        return [("client_left", detail)]
    failed = [attempt for attempt in exchange.attempts if attempt.reason]
    reasons = list(dict.fromkeys(attempt.reason for attempt in failed))
    return [("recovered", {"reasons": reasons, "from": failed[0].tier, **detail})]


def count_attempt(
    services: Services,
    exchange: Exchange,
    outcome: Outcome,
    spent: Spent | None,
) -> None:
    """One upstream call has ended."""
    metrics = services.metrics
    tier = tier_label(exchange)
    metrics.attempts.labels(tier, outcome.reason or "ok").inc()
    if spent is not None:
        count_tokens(services, tier, spent)
        now = asyncio.get_running_loop().time()
        services.token_rates.ended(tier, spent.output, now - outcome.seconds, now)


def count_tokens(services: Services, tier: str, spent: Spent) -> None:
    """Tokens that were used. ``tier``: a metric's label."""
    metrics = services.metrics
    metrics.tokens.labels(tier, "input").inc(spent.prompt)
    metrics.tokens.labels(tier, "output").inc(spent.output)


def note_step(services: Services, exchange: Exchange, step: Step) -> None:
    """What follows an attempt has been decided; the exchange goes by it already."""
    match step:
        case Retry():
            services.metrics.retries.labels(tier_label(exchange), step.reason).inc()
        case Move():
            note_escalated(services, exchange, exchange.outcomes[-1].tier, step.reason)
        case Fail() if not isinstance(exchange.outcomes[-1].verdict, Rejected):
            _exhausted(services, exchange, step.error)


def note_escalated(services: Services, exchange: Exchange, before: str, reason: str) -> None:
    """A tier was left for that of now."""
    services.metrics.escalations.labels(before, exchange.tier, reason).inc()
    detail = {"from": before, "to": exchange.tier, "reason": reason}
    keep(services, exchange, [("escalated", detail)])


def note_hint_refused(services: Services, exchange: Exchange) -> None:
    """A tier took words of ours only in a tool result; whoever runs it can say that it does."""
    if services.rate_limit.allows(("hint_refused", exchange.tier)):
        advice = "hint_placement: tool_result"
        advice = advice if exchange.route.tiers else f"make it a tier with {advice}"
        log.get().warning("hint_refused", tier=exchange.tier, advice=advice)


def settle_incidents(services: Services, exchange: Exchange, incidents: Sequence[Incident]) -> None:
    """Count what the stages reported of an attempt, and keep it as events."""
    if not incidents:
        return
    tier = tier_label(exchange)
    tools = exchange.request.offered()  # what else a model calls a tool is its own text
    events = []
    for incident in incidents:
        row = INCIDENTS[incident.kind]
        counter = getattr(services.metrics, row.metric)
        labels = (tier, *incident.labels) if row.by_tier else incident.labels
        (counter.labels(*labels) if labels else counter).inc(amount_of(incident))
        if not row.event:
            continue
        detail = dict(zip(row.labels, incident.labels, strict=True))
        if incident.kind in _WITH_DETAIL:
            detail |= incident.detail
        elif (tool := incident.detail.get("tool")) in tools:
            detail["tool"] = tool
        events.append((row.event, detail))
    keep(services, exchange, events)


def _exhausted(services: Services, exchange: Exchange, error: ProxyError) -> None:
    """The exchange ends without a reply, whatever was tried; the client's own fault is no such."""
    if error.type == INVALID_REQUEST:
        return
    tried = [attempt.as_dict() for attempt in exchange.attempts]
    detail = {"type": error.type, "status": error.status, "attempts": tried}
    keep(services, exchange, [("exhausted", detail)])


def keep(
    services: Services, exchange: Exchange, events: Sequence[tuple[str, dict[str, Any]]]
) -> None:
    """Keep events, each with its kind and detail, for the post-mortem."""
    who = (exchange.id, exchange.session.hash, exchange.request.agent)
    keep_of(services, who, exchange.tier, events)


def keep_alone(services: Services, kind: str, detail: dict[str, Any]) -> None:
    """Keep an event that belongs to no request."""
    keep_of(services, ("", "", ""), "", [(kind, detail)])


def keep_of(
    services: Services,
    who: tuple[str, str, str],
    tier: str,
    events: Sequence[tuple[str, dict[str, Any]]],
) -> None:
    """Keep events of a request. ``who``: its id, its session's hash, its agent."""
    request_id, session, agent = who
    common = {
        "time": services.wall_clock(),
        "request_id": request_id,
        "session": session,
        "agent": agent,
        "tier": tier,
    }
    kept = [{**common, "kind": kind, "detail": detail} for kind, detail in events]
    services.journal.add(kept)
    for event in kept:
        if services.notifier is not None:
            services.notifier.told(event)
        if counter := _COUNTED.get(str(event["kind"])):
            count_alone(services, {counter: 1}, tier)


def count_alone(services: Services, counts: Counts, tier: str = "") -> None:
    """Count what belongs to no request."""
    services.journal.count({HourKey(hour_of(services.wall_clock()), "", tier): counts})


def stage_failed(services: Services, stage: str, error: Exception) -> None:
    """A bug of ours: counted and said, and the exchange goes on without."""
    services.metrics.stage_faults.labels(stage).inc()
    log.fault("stage_fault", error, stage=stage)


def store_failed(services: Services, error: StoreError) -> None:
    """Count it; say it once a minute, for it may be so for each request."""
    services.metrics.store_errors.inc()
    if services.rate_limit.allows("store_error"):
        log.fault("store_error", error, reason=str(error), said="once a minute")


def close(services: Services, exchange: Exchange, outcome: str, seconds: float) -> None:
    """The exchange is over."""
    metrics = services.metrics
    tier = tier_label(exchange)
    metrics.requests.labels(tier, outcome).inc()
    metrics.count_agent(exchange.request.agent, outcome)
    metrics.request.labels(tier).observe(seconds)
    said: dict[str, Any] = {}
    failed = [f"{a.tier}:{a.reason}:{a.status}" for a in exchange.attempts if a.reason]
    if failed:
        said["failed"] = failed
    if exchange.escalated_from:
        said["escalated_from"] = exchange.escalated_from
        said["reason"] = exchange.escalation_reason
    if repairs := exchange.reply_notes.get("Repairs"):
        said["repairs"] = repairs
    log.get().info(
        "exchange",
        request_id=exchange.id,
        session=exchange.session.header,
        tier=exchange.tier,
        outcome=outcome,
        attempts=len(exchange.attempts),
        retries=exchange.retries,
        stream=exchange.request.stream,
        seconds=round(seconds, 4),
        **said,
    )
