"""``GET /mlx-stack/report``: reads the counters and events for a report from the store."""

from __future__ import annotations

from typing import Any

from .. import __version__
from ..driver.services import Services
from ..state.hourly import HOUR, hour_of
from ..state.store import EventQuery
from ..telemetry import report
from .kept import counts_of, events_of

# The kinds of event in the report.
_KINDS = (
    *("exhausted", "upstream_down", "upstream_up", "tier_degraded", "tier_recovered"),
    *("store_down", "store_up"),
)
MOST_EVENTS = 1000  # of each kind, the newest


async def report_of(services: Services, query: report.ReportScope) -> dict[str, Any]:
    """Return the report as JSON-ready data, with the proxy's version.

    The report begins at the full hour of ``query.since``, because the store counts by the hour.
    While the store fails, it is about what this process has in memory.
    """
    first, last = hour_of(query.since), hour_of(query.until)
    since = first * HOUR
    rows, trouble = await counts_of(services, first, last)
    numbered = []
    for kind in _KINDS:
        event_query = EventQuery(kind=kind, since=since, limit=MOST_EVENTS)
        found, failed = await events_of(services, event_query)
        numbered += found
        trouble = failed or trouble
    events = [event for _, event in sorted(numbered, key=lambda entry: entry[0])]
    events = [event for event in events if event["time"] <= query.until]
    remembered, trouble = trouble is not None, trouble or services.store.health.sentence
    query = report.ReportScope(since, query.until, query.agent, trouble, remembered)
    return {"version": __version__, **report.build(query, rows, events, services.settings)}
