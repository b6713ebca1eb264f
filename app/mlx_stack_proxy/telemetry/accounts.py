"""What an exchange leaves behind: counters, events, one line in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ..engine.exchange import Exchange
from ..engine.outcome import Incident, Outcome
from ..engine.services import Services
from ..engine.steps import Fail, Move, Retry, Step
from ..engine.verdicts import Rejected, UpstreamFailed, Verdict
from ..errors import INVALID_REQUEST, ProxyError
from ..escalation.breaker import TierCall
from ..state.hourly import Counts, Deltas, HourKey, hour_of
from ..state.store import StoreError
from ..token_budget.budgets import Spent
from . import log
from .exchange_counts import RECOVERED, counts_of, difference, way_of
from .metrics import OTHER

# What stages report → the event that is kept (docs/observability.md), and its labels there.
_EVENTS = {
    "tool_call_invalid": ("tool_call_invalid", ("failure",)),
    "tool_call_repaired": ("tool_call_repaired", ("repair",)),
    "tool_call_rescued": ("tool_call_repaired", ("format",)),
    "loop_warning": ("loop_warning", ("detector", "action")),
    "loop_break": ("loop_break", ("detector", "action")),
    "truncated": ("loop_warning", ("truncated",)),
}
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


class HourlyCount:
    """What the hour's counters have of one exchange, by tier, and as which outcome."""

    def __init__(self, services: Services, exchange: Exchange) -> None:
        self._services = services
        self._exchange = exchange
        self._counted: Mapping[str, Counts] = {}
        self._counted_as = ""

    def told(self, outcome: str) -> Deltas:
        """What to add to the counters for this end; it also keeps the exchange's last events.

        A second call with another outcome gives the correction of the first.
        """
        if self._counted_as == outcome:
            return {}
        services, exchange = self._services, self._exchange
        try:
            found = counts_of(exchange, outcome)
            hour = hour_of(services.wall_clock())
            missing = difference(found, self._counted)
            self._counted, self._counted_as = found, outcome
            if told := _told_of_end(exchange, outcome):
                keep(services, exchange, told)
        except Exception as error:  # no reason to keep a reply back that was fine
            stage_failed(services, "books", error)
            return {}
        agent = exchange.request.agent
        return {HourKey(hour, agent, tier): counts for tier, counts in missing.items()}


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
    metrics.attempts.inc(tier, outcome.reason or "ok")
    if spent is not None:
        count_tokens(services, tier, spent)
        now = asyncio.get_running_loop().time()
        services.token_rates.ended(tier, spent.output, now - outcome.seconds, now)


def count_tokens(services: Services, tier: str, spent: Spent) -> None:
    """Tokens that were used. ``tier``: a metric's label."""
    metrics = services.metrics
    metrics.tokens.inc(tier, "input", by=spent.prompt)
    metrics.tokens.inc(tier, "output", by=spent.output)


def note_step(services: Services, exchange: Exchange, step: Step) -> None:
    """What follows an attempt has been decided; the exchange goes by it already."""
    match step:
        case Retry():
            services.metrics.retries.inc(tier_label(exchange), step.reason)
        case Move():
            note_escalated(services, exchange, exchange.outcomes[-1].tier, step.reason)
        case Fail() if not isinstance(exchange.outcomes[-1].verdict, Rejected):
            _exhausted(services, exchange, step.error)


def note_escalated(services: Services, exchange: Exchange, before: str, reason: str) -> None:
    """A tier was left for that of now."""
    services.metrics.escalations.inc(before, exchange.tier, reason)
    detail = {"from": before, "to": exchange.tier, "reason": reason}
    keep(services, exchange, [("escalated", detail)])


def note_tier(
    services: Services, exchange: Exchange, call: TierCall, verdict: Verdict | None
) -> None:
    """Tell the tier's breaker, and whoever runs the tier, how a call ended."""
    event = services.tier_states.note(call, verdict, exchange.request)
    if isinstance(verdict, UpstreamFailed):
        services.recovery.watch(call.tier)
    elif exchange.hint_in_tool_result:  # so it was for our words that the call before was refused
        note_hint_refused(services, exchange)
    if event is not None:
        keep(services, exchange, [(event["kind"], event["detail"])])


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
    metrics = services.metrics
    tier = tier_label(exchange)
    tools = exchange.request.offered()  # what else a model calls a tool is its own text
    events = []
    for incident in incidents:
        match incident.kind:
            case "tool_call_invalid":
                metrics.tool_call_failures.inc(tier, *incident.labels)
            case "tool_call_repaired":
                metrics.tool_call_repairs.inc(*incident.labels)
            case "loop_warning" | "loop_break":
                metrics.loops.inc(*incident.labels)
            case "truncated":
                metrics.truncations.inc(*incident.labels)
            case "tokens_saved":
                metrics.tokens_saved.inc(by=incident.detail["tokens"])
                continue  # a figure, no event
            case "tool_call_unchecked":
                metrics.unchecked_tool_calls.inc()
                continue
            case "tool_call_rescued":
                metrics.rescued_tool_calls.inc(*incident.labels)
        kind, names = _EVENTS[incident.kind]
        detail = dict(zip(names, incident.labels, strict=True))
        if incident.kind in _WITH_DETAIL:
            detail |= incident.detail
        elif (tool := incident.detail.get("tool")) in tools:
            detail["tool"] = tool
        events.append((kind, detail))
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
    services.metrics.stage_faults.inc(stage)
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
    metrics.requests.inc(tier, outcome)
    metrics.count_agent(exchange.request.agent, outcome)
    metrics.request.observe(seconds, tier)
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
