"""``GET /mlx-stack/report``: reads the counters and events for a report from the store."""

from __future__ import annotations

from typing import Any

from .. import __version__
from ..engine.services import Services
from ..state.hourly import HOUR, hour_of
from ..state.store import EventQuery
from ..telemetry import report

# The kinds of event that the report tells of.
_KINDS = ("exhausted", "upstream_down", "upstream_up", "tier_degraded", "tier_recovered")
MOST_EVENTS = 1000  # of each kind, the newest


async def report_of(services: Services, asked: report.Asked) -> dict[str, Any]:
    """Return the report as JSON-ready data, with the proxy's version. Raises ``StoreError``.

    It begins at the full hour of ``asked.since``, for the store counts by the hour.
    """
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
