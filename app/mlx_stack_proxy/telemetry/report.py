"""Build the report of some hours as one JSON object (docs/http.md), from counters and events.

All functions are pure. The object's ``said`` has its figures in sentences (``report_words``), its
``advice`` comes from ``advice``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from ..settings import Settings
from ..state.hourly import HOUR, Counts, HourKey
from . import report_words
from .advice import advice
from .counters import MINUTES, SLOT, failed_of, parts_of

MAX_FAILURES: Final = 5  # the newest ones of a type, listed one by one
Event = Mapping[str, Any]
Json = dict[str, Any]
# What is out, by the kind of event that begins the outage, and by the kind that ends it.
_DOWN: Final = {"upstream_down": "litellm", "tier_degraded": "tier", "store_down": "store"}
_UP: Final = {"upstream_up": "litellm", "tier_recovered": "tier", "store_up": "store"}


class ReportScope(Struct, frozen=True):
    """The time and the agent that a report is about."""

    since: float  # seconds since 1970
    until: float  # seconds since 1970
    agent: str | None = None  # only this agent's exchanges; None: all agents'
    trouble: str | None = None  # what is wrong with the store
    remembered: bool = False  # rows or events are only those in this process's memory


def build(
    scope: ReportScope, rows: Mapping[HourKey, Counts], events: Sequence[Event], settings: Settings
) -> Json:
    """Return the report. ``rows``: of the hours asked for. ``events``: in their order."""
    of_agents = {
        key: counts
        for key, counts in rows.items()
        if key.agent and scope.agent in (None, key.agent)
    }
    found = sums(of_agents)
    figures = {
        "since": scope.since,
        "until": scope.until,
        "agent": scope.agent,
        "store": scope.trouble or "ok",
        "remembered": scope.remembered,
        "agents": sorted({key.agent for key in rows if key.agent}),
        **found,
        "parts": parts_of(found["totals"]),
        "by_agent": _failing_first(_by(of_agents, "agent")),
        "process": _sum(counts for key, counts in rows.items() if not key.agent),
        "hours": [
            _hour(key, row)
            for key, row in sorted(rows.items())
            if scope.agent is None or key.agent in ("", scope.agent)
        ],
        "minutes": minutes(of_agents, scope),
        "outages": outages(events, scope.until),
        "failures": failures(events, scope.agent),
    }
    words = {"said": report_words.said(figures), "advice": advice(found["by_tier"], settings)}
    return {**figures, **words}


def sums(rows: Mapping[HourKey, Counts]) -> Json:
    """Return all agents' counters, summed up as ``totals`` and ``by_tier``."""
    of_agents = {key: counts for key, counts in rows.items() if key.agent}
    return {"totals": _sum(of_agents.values()), "by_tier": _by(of_agents, "tier")}


def _hour(key: HourKey, row: Counts) -> Json:
    entry = {"hour": key.hour * HOUR, "agent": key.agent, "tier": key.tier, "counts": _plain(row)}
    return {**entry, "parts": parts_of(row)} if key.agent else entry


def minutes(rows: Mapping[HourKey, Counts], scope: ReportScope) -> list[Json]:
    """Return what the exchanges of the last hour came to, by five minutes, from a full hour on."""
    size = SLOT * 60
    first = max(int(scope.since), int((scope.until - HOUR) // HOUR) * int(HOUR)) // size * size
    slots: dict[float, dict[str, int]] = {at: {} for at in range(first, int(scope.until) + 1, size)}
    for key, counts in rows.items():
        for name, number in counts.items():
            if name.startswith(MINUTES):
                minute, _, part = name.removeprefix(MINUTES).partition(":")
                parts = slots.get(key.hour * HOUR + int(minute) * 60 if part else 0)
                if parts is not None:
                    parts[part] = parts.get(part, 0) + int(number)
    return [{"time": time, "parts": parts} for time, parts in slots.items()]


def _failing_first(by_agent: Mapping[str, Json]) -> dict[str, Json]:
    def key(name: str) -> tuple[float, float]:
        return -failed_of(by_agent[name]), -by_agent[name].get("requests", 0)

    return {name: by_agent[name] for name in sorted(by_agent, key=key)}


def outages(events: Iterable[Event], until: float) -> list[Json]:
    """Return the outages of LiteLLM, of tiers and of the store, oldest first.

    An outage that lasts has ``until`` None, and ``seconds`` up to the given ``until``.
    """
    all_outages: list[Json] = []
    lasting: dict[tuple[str, str], Json] = {}
    for event in events:
        kind, tier = event["kind"], event.get("tier", "")
        if (what := _DOWN.get(kind)) is not None and (what, tier) not in lasting:
            begun: Json = {"what": what, "tier": tier, "since": event["time"], "until": None}
            if why := (event.get("detail") or {}).get("why"):
                begun["why"] = why
            lasting[what, tier] = begun
            all_outages.append(begun)
        elif (ended := lasting.pop((_UP.get(kind, ""), tier), None)) is not None:
            ended["until"] = event["time"]
    for outage in all_outages:
        outage["seconds"] = round((outage["until"] or until) - outage["since"], 1)
    return all_outages


def failures(events: Iterable[Event], agent: str | None) -> list[Json]:
    """Return requests that ended with an error: of each type the newest, in order of time."""
    by_type: dict[str, list[Json]] = defaultdict(list)
    for event in events:
        if event["kind"] != "exhausted" or agent not in (None, event.get("agent", "")):
            continue
        detail, request = event.get("detail") or {}, event.get("request_id", "")
        entry = {
            "time": event["time"],
            "request_id": request,
            "session": event["session"],
            "agent": event.get("agent", ""),
            "tier": event.get("tier", ""),
            "type": detail.get("type", ""),
            "status": detail.get("status"),
            "attempts": len(detail.get("attempts") or ()),
            "command": f"mlx-stack-proxy why {request}",
        }
        by_type[entry["type"]].append(entry)
    newest = [failure for several in by_type.values() for failure in several[-MAX_FAILURES:]]
    return sorted(newest, key=lambda failure: failure["time"])


def _by(rows: Mapping[HourKey, Counts], field: str) -> dict[str, Json]:
    groups: dict[str, list[Counts]] = defaultdict(list)
    for key, counts in rows.items():
        groups[getattr(key, field)].append(counts)
    return {name: _sum(groups[name]) for name in sorted(groups)}


def _sum(rows: Iterable[Counts]) -> Json:
    sums: dict[str, float] = defaultdict(float)
    for counts in rows:
        for name, number in counts.items():
            sums[name] += number
    return _plain(sums)


def _plain(counts: Counts) -> Json:
    """Return counters by name: whole numbers as ints, others to the millisecond, no zeros.

    Those by the minute are left out.
    """
    return {
        name: int(number) if number == int(number) else round(number, 3)
        for name, number in sorted(counts.items())
        if number and not name.startswith(MINUTES)
    }
