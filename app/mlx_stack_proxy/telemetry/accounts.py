"""Records what happens: metrics, hourly counters, events, and one log line for each exchange.

The engine, the server and the token budgets call these functions; each takes the shared
``Shared`` and changes nothing of the exchange. Events and the hours' counters go to the journal,
which writes them to the store.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import orjson

from .. import log
from ..engine import record as records
from ..engine.exchange import Exchange
from ..engine.outcome import Incident
from ..engine.record import RECOVERED, AttemptRecord, Record, record_of
from ..engine.steps import Fail, LastStep
from ..engine.verdicts import Failure
from ..errors import INVALID_REQUEST
from ..kept import kept
from ..state.hourly import Counts, HourKey, hour_of
from ..state.store import KeptRecord, StoreError
from .counters import INCIDENTS, amount_of, counts_of
from .shared import Shared

# Events that belong to no request, each with the hour's counter that it adds 1 to.
_COUNTED = {
    "started": "starts",
    "stopped": "stops",
    "config_reloaded": "reloads",
    "config_refused": "refused_reloads",
    "upstream_down": "down",
    "tier_degraded": "down",
}

tier_label = records.tier_label


def count_end(
    services: Shared,
    exchange: Exchange,
    outcome: str,
    last: LastStep | None = None,
    *,
    begun: bool = False,
) -> None:
    """Make an ended exchange's record, and count it. ``last``, ``begun``: as in `record_of`."""
    try:
        now = services.wall_clock()
        seconds = asyncio.get_running_loop().time() - exchange.request.started
        record = record_of(exchange, outcome, now, seconds, last, begun=begun)
        by_tier = counts_of(record)
        if not record.plain:
            _keep(services, exchange, record)
    except Exception as error:  # a fault in counting must not withhold the reply
        stage_failed(services, "books", error)
        return
    exchange.record = record
    services.records.append(record)
    services.metrics.count("requests", record.tier, outcome)
    services.metrics.count_agent(record.agent, outcome)
    hour, agent = hour_of(now), record.agent
    services.journal.count({HourKey(hour, agent, tier): row for tier, row in by_tier.items()})


def _keep(services: Shared, exchange: Exchange, record: Record) -> None:
    """Keep the record, and the last event of an exchange that recovered or lost its client."""
    body = kept(orjson.dumps(as_data(record)))  # for as long as the store is away
    services.journal.keep(KeptRecord(record.id, record.time, record.agent, record.session, body))
    called = [attempt for attempt in record.attempts if attempt.called]
    detail: dict[str, Any] = {"attempts": len(called), "seconds": round(record.seconds, 3)}
    if record.outcome == "client_left":
        record_event(services, "client_left", detail, exchange)
    elif record.way in RECOVERED:
        failed = [attempt for attempt in called if attempt.reason]
        reasons = list(dict.fromkeys(attempt.reason for attempt in failed))
        detail = {"reasons": reasons, "from": failed[0].tier, **detail}
        record_event(services, "recovered", detail, exchange)


def note_attempt(services: Shared, exchange: Exchange) -> None:
    """Count the exchange's last attempt and its step, and record their events, by its record."""
    attempt, outcome = records.attempts_of(exchange)[-1], exchange.outcomes[-1]
    if attempt.called:
        _count_call(services, attempt, outcome.remarks.reply_notes.get("Max-Tokens", ""))
    if attempt.incidents:
        request = exchange.request
        who = Requester(request.id, request.session.hash, request.agent, outcome.tier)
        for incident in attempt.incidents:
            _count_incident(services, who, attempt.tier, incident)
    if attempt.then == "retry":
        services.metrics.count("retries", attempt.tier, attempt.then_reason)
    elif attempt.then == "move":
        note_escalated(services, exchange, attempt.tier, attempt.then_reason)
    step = exchange.steps[-1] if len(exchange.steps) == len(exchange.outcomes) else None
    our_own = isinstance(outcome.verdict, Failure) and outcome.verdict.error is not None
    if isinstance(step, Fail) and step.error.type != INVALID_REQUEST and not our_own:
        tried = [one.as_dict() for one in exchange.attempts]
        detail = {"type": step.error.type, "status": step.error.status, "attempts": tried}
        if tried and attempt.wrong:
            detail["why"] = attempt.wrong
        record_event(services, "exhausted", detail, exchange)


def _count_call(services: Shared, attempt: AttemptRecord, lowered: str) -> None:
    """Count a call. ``lowered``: as in ``X-MLX-Stack-Max-Tokens``."""
    count, tier = services.metrics.count, attempt.tier
    count("attempts", tier, attempt.reason or "ok")
    if attempt.guided:
        count("guided_attempts", tier, "other" if attempt.guided == "asked" else attempt.guided)
    if lowered and services.rate_limit.allows(("max_tokens_lowered", tier)):
        sent, _, asked = lowered.partition(";asked=")
        log.get().warning(
            "max_tokens_lowered", tier=tier, asked=int(asked), sent=int(sent), said="once a minute"
        )
    if attempt.figures.tokens_in or attempt.figures.tokens_out:
        count_tokens(services, tier, attempt.figures.tokens_in, attempt.figures.tokens_out)


def _count_incident(services: Shared, who: Requester, tier: str, incident: Incident) -> None:
    row = INCIDENTS[incident.kind]
    labels = (tier, *incident.labels) if row.by_tier else incident.labels
    services.metrics.count(row.metric, *labels, by=amount_of(incident))
    if not row.event:
        return
    detail = dict(zip(row.labels, incident.labels, strict=True))
    if row.whole:
        detail |= incident.detail
    elif tool := incident.detail.get("tool"):
        detail["tool"] = tool
    record_event(services, row.event, detail, who)


def count_tokens(services: Shared, tier: str, prompt: int, output: int) -> None:
    """Count tokens in the metrics. ``tier``: the label, as ``tier_label`` returns it."""
    services.metrics.count("tokens", tier, "input", by=prompt)
    services.metrics.count("tokens", tier, "output", by=output)


def count_question(services: Shared, agent: str, tier: str, prompt: int, output: int) -> None:
    """Count the tokens of a question to the loop model, which is no attempt of an exchange."""
    count_tokens(services, tier, prompt, output)
    key = HourKey(hour_of(services.wall_clock()), agent, tier)
    services.journal.count({key: {"tokens_in": prompt, "tokens_out": output}})


def note_escalated(services: Shared, exchange: Exchange, from_tier: str, reason: str) -> None:
    """Record that the exchange has moved from ``from_tier`` to its current tier."""
    services.metrics.count("escalations", from_tier, exchange.tier, reason)
    detail = {"from": from_tier, "to": exchange.tier, "reason": reason}
    record_event(services, "escalated", detail, exchange)


def note_hint_refused(services: Shared, exchange: Exchange) -> None:
    """Advise the operator, once a minute, that a tier accepts hints only in a tool result."""
    if services.rate_limit.allows(("hint_refused", exchange.tier)):
        advice = "hint_placement: tool_result"
        advice = advice if exchange.request.route.tiers else f"make it a tier with {advice}"
        log.get().warning("hint_refused", tier=exchange.tier, advice=advice)


def as_data(record: Record) -> dict[str, Any]:
    """Return a record as stored, with the client and the time of its end."""
    who = {"request_id": record.id, "session": record.session, "agent": record.agent}
    return {**who, "time": record.time, "tier": record.tier, "detail": record.as_data()}


class Requester(NamedTuple):
    """The client that an event is about; the fields are "" if it belongs to no request."""

    request_id: str = ""
    session: str = ""  # its hash
    agent: str = ""
    tier: str = ""


NOBODY = Requester()


def record_event(
    services: Shared, kind: str, detail: dict[str, Any], of: Exchange | Requester = NOBODY
) -> None:
    """Record an event, for the post-mortem; those of ``_COUNTED`` count in their hour, too."""
    if isinstance(of, Exchange):
        of = Requester(of.request.id, of.request.session.hash, of.request.agent, of.tier)
    event = {"time": services.wall_clock(), **of._asdict(), "kind": kind, "detail": detail}
    services.journal.add([event])
    if services.notifier is not None:
        services.notifier.on_event(event)
    if counter := _COUNTED.get(kind):
        count_alone(services, {counter: 1}, of.tier)


def count_alone(services: Shared, counts: Counts, tier: str = "") -> None:
    """Add to the current hour's counters that belong to no request; ``tier``: "" for no tier."""
    services.journal.count({HourKey(hour_of(services.wall_clock()), "", tier): counts})


def stage_failed(services: Shared, stage: str, error: Exception) -> None:
    """Count and log a bug of ours; the exchange goes on without the part that failed."""
    services.metrics.count("stage_faults", stage)
    log.fault("stage_fault", error, stage=stage)


def store_failed(services: Shared, error: StoreError) -> None:
    """Count a failed call; log it once a minute at most, because every request may fail."""
    services.metrics.count("store_errors")
    if services.rate_limit.allows("store_error"):
        log.fault("store_error", error, reason=str(error), said="once a minute")


def store_changed(services: Shared, why: str | None) -> None:
    """Record that the store has begun to fail, and ``why``; None: that it works again."""
    now = asyncio.get_running_loop().time()
    if why is not None:
        services.life.store_down_at = now
        record_event(services, "store_down", {"why": why})
    else:
        record_event(services, "store_up", {"seconds": round(now - services.life.store_down_at, 1)})


def close(services: Shared, record: Record, outcome: str, seconds: float) -> None:
    """Log an ended exchange's line. ``outcome``, ``seconds``: to its last byte."""
    services.metrics.observe("request_seconds", seconds, record.tier)
    called = [attempt for attempt in record.attempts if attempt.called]
    told = {
        "failed": [f"{one.tier}:{one.reason}:{one.figures.status}" for one in called if one.reason],
        "escalated_from": record.escalated_from,
        "reason": record.escalation_reason,
        "repairs": record.repairs,
    }
    log.get().info(
        "exchange",
        request_id=record.id,
        session=f"{record.session_source};{record.session[:12]}",
        tier=record.model if record.tier == records.OTHER else record.tier,
        outcome=outcome,
        attempts=len(called),
        retries=sum(attempt.then == "retry" for attempt in record.attempts),
        stream=record.stream,
        seconds=round(seconds, 4),
        **{name: value for name, value in told.items() if value},
    )
