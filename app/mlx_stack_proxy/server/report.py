"""``GET /mlx-stack/report``: reads the counters and events for a report from the store."""

from __future__ import annotations

from typing import Any

from .. import __version__
from ..engine.services import Services
from ..state.hourly import HOUR, hour_of
from ..state.store import EventQuery
from ..telemetry import report

# The kinds of event in the report.
_KINDS = ("exhausted", "upstream_down", "upstream_up", "tier_degraded", "tier_recovered")
MOST_EVENTS = 1000  # of each kind, the newest


async def report_of(services: Services, query: report.Asked) -> dict[str, Any]:
    """Return the report as JSON-ready data, with the proxy's version. Raises ``StoreError``.

    The report begins at the full hour of ``query.since``, for the store counts by the hour.
    """
    first, last = hour_of(query.since), hour_of(query.until)
    since = first * HOUR
    rows = await services.store.counts(first, last)
    numbered = []
    for kind in _KINDS:
        event_query = EventQuery(kind=kind, since=since, limit=MOST_EVENTS)
        numbered += await services.store.events(event_query)
    events = [event for _, event in sorted(numbered, key=lambda entry: entry[0])]
    events = [event for event in events if event["time"] <= query.until]
    query = report.Asked(since, query.until, query.agent)
    return {"version": __version__, **report.build(query, rows, events, services.settings)}
