"""``GET /mlx-stack/report``: what is read from the store for it."""

from __future__ import annotations

from typing import Any

from .. import __version__
from ..engine.services import Services
from ..state.hourly import HOUR, hour_of
from ..state.store import EventQuery
from ..telemetry import report

# What the report tells of the events.
_KINDS = ("exhausted", "upstream_down", "upstream_up", "tier_degraded", "tier_recovered")
MOST_EVENTS = 1000  # of a kind, the newest


async def report_of(services: Services, asked: report.Asked) -> dict[str, Any]:
    """The report on whole hours. Raises ``StoreError``."""
    first, last = hour_of(asked.since), hour_of(asked.until)
    since = first * HOUR
    rows = await services.store.counts(first, last)
    events = []
    for kind in _KINDS:
        query = EventQuery(kind=kind, since=since, limit=MOST_EVENTS)
        events += await services.store.events(query)
    told = [event for _, event in sorted(events, key=lambda one: one[0])]
    told = [event for event in told if event["time"] <= asked.until]
    asked = report.Asked(since, asked.until, asked.agent)
    return {"version": __version__, **report.build(asked, rows, told, services.settings)}
