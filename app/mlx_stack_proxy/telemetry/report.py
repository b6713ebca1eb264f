"""Build the report of some hours as one JSON object (docs/http.md), from counters and events.

All functions are pure. The object's ``said`` tells its figures in sentences, which ``report_words``
makes; its ``advice`` comes from ``advice``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..frozen import frozen
from ..settings import Settings
from ..state.hourly import HOUR, Counts, HourKey
from . import report_words
from .advice import advice

MOST_FAILURES: Final = 5  # the newest ones of a type, listed one by one
Event = Mapping[str, Any]
Found = dict[str, Any]
# By the kind of event that begins an outage, the kind that ends it.
_DOWN: Final = {"upstream_down": "upstream_up", "tier_degraded": "tier_recovered"}
_UP: Final = {end: begin for begin, end in _DOWN.items()}


@frozen
class Asked:
    """The time and the agent that a report is about."""

    since: float  # seconds since 1970
    until: float  # seconds since 1970
    agent: str | None = None  # only this agent's exchanges; None: all agents'


def build(
    scope: Asked, rows: Mapping[HourKey, Counts], events: Sequence[Event], settings: Settings
) -> Found:
    """Return the report. ``rows``: of the hours asked for. ``events``: in their order."""
    figures = _figures(scope, rows, events)
    words = {"said": report_words.said(figures), "advice": advice(figures["by_tier"], settings)}
    return {**figures, **words}


def _figures(scope: Asked, rows: Mapping[HourKey, Counts], events: Sequence[Event]) -> Found:
    of_agents = {
        key: counts
        for key, counts in rows.items()
        if key.agent and scope.agent in (None, key.agent)
    }
    return {
        "since": scope.since,
        "until": scope.until,
        "agent": scope.agent,
        "agents": sorted({key.agent for key in rows if key.agent}),
        **sums(of_agents),
        "by_agent": _by(of_agents, "agent"),
        "process": _sum(counts for key, counts in rows.items() if not key.agent),
        "hours": [
            {"hour": key.hour * HOUR, "agent": key.agent, "tier": key.tier, "counts": _plain(row)}
            for key, row in sorted(rows.items())
            if scope.agent is None or key.agent in ("", scope.agent)
        ],
        "outages": outages(events, scope.until),
        "failures": failures(events, scope.agent),
    }


def sums(rows: Mapping[HourKey, Counts]) -> Found:
    """Return all agents' counters, summed up as ``totals`` and ``by_tier``."""
    of_agents = {key: counts for key, counts in rows.items() if key.agent}
    return {"totals": _sum(of_agents.values()), "by_tier": _by(of_agents, "tier")}


def outages(events: Iterable[Event], until: float) -> list[Found]:
    """Return the outages of LiteLLM and of tiers, oldest first.

    An outage that lasts has ``until`` None, and ``seconds`` up to the given ``until``.
    """
    all_outages: list[Found] = []
    open_: dict[tuple[str, str], Found] = {}
    for event in events:
        kind, tier = event["kind"], event.get("tier", "")
        if kind in _DOWN and (kind, tier) not in open_:
            subject = "litellm" if kind == "upstream_down" else "tier"
            begun: Found = {"what": subject, "tier": tier, "since": event["time"], "until": None}
            open_[kind, tier] = begun
            all_outages.append(begun)
        elif kind in _UP and (ended := open_.pop((_UP[kind], tier), None)) is not None:
            ended["until"] = event["time"]
    for outage in all_outages:
        outage["seconds"] = round((outage["until"] or until) - outage["since"], 1)
    return all_outages


def failures(events: Iterable[Event], agent: str | None) -> list[Found]:
    """Return requests that ended with an error: of each type the newest, in order of time."""
    by_type: dict[str, list[Found]] = defaultdict(list)
    for event in events:
        if event["kind"] == "exhausted" and agent in (None, event.get("agent", "")):
            entry = _failure(event)
            by_type[entry["type"]].append(entry)
    newest = [failure for several in by_type.values() for failure in several[-MOST_FAILURES:]]
    return sorted(newest, key=lambda failure: failure["time"])


def _failure(event: Event) -> Found:
    detail = event.get("detail") or {}
    request = event.get("request_id", "")
    return {
        "time": event["time"],
        "request_id": request,
        "session": event["session"],
        "agent": event.get("agent", ""),
        "tier": event.get("tier", ""),
        "type": detail.get("type", ""),
        "status": detail.get("status"),
        "attempts": len(detail.get("attempts") or ()),
        "command": f"mlx-stack-proxy events --request {request}",
    }


def _by(rows: Mapping[HourKey, Counts], field: str) -> dict[str, Found]:
    groups: dict[str, list[Counts]] = defaultdict(list)
    for key, counts in rows.items():
        groups[getattr(key, field)].append(counts)
    return {name: _sum(groups[name]) for name in sorted(groups)}


def _sum(rows: Iterable[Counts]) -> Found:
    sums: dict[str, float] = defaultdict(float)
    for counts in rows:
        for name, number in counts.items():
            sums[name] += number
    return _plain(sums)


def _plain(counts: Counts) -> Found:
    """Return counters by name: whole numbers as ints, others to the millisecond, no zeros."""
    return {
        name: int(number) if number == int(number) else round(number, 3)
        for name, number in sorted(counts.items())
        if number
    }
