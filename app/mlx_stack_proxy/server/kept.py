"""Reads events, counters and records from the store; while it fails, from this process's memory.

``report_of()`` makes the report of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import orjson

from .. import __version__
from ..driver.services import Services
from ..engine.record import Record
from ..state.hourly import HOUR, Counts, HourKey, hour_of
from ..state.store import EventQuery, StoreError
from ..telemetry import accounts, report

LAST: Final = "last"  # in place of a request's id
# The kinds of event in the report.
_KINDS = (
    *("exhausted", "upstream_down", "upstream_up", "tier_degraded", "tier_recovered"),
    *("store_down", "store_up"),
)
MAX_EVENTS = 1000  # of each kind, the newest
Events = list[tuple[int, Mapping[str, Any]]]
T = TypeVar("T")


async def or_remembered(
    services: Services, asked: Awaitable[T], remembered: Callable[[], T]
) -> tuple[T, str | None]:
    """Return the store's answer; if it fails, the result of ``remembered``, and the error."""
    try:
        return await asked, None
    except StoreError as error:
        accounts.store_failed(services, error)
        return remembered(), str(error)


async def events_of(services: Services, query: EventQuery) -> tuple[Events, str | None]:
    """Return the events that ``query`` selects, and the store's error, if any."""
    await services.journal.written()

    def remembered() -> Events:
        return services.journal.remembered(query)[-query.limit :] if query.limit else []

    return await or_remembered(services, services.store.events(query), remembered)


async def counts_of(
    services: Services, first: int, last: int
) -> tuple[Mapping[HourKey, Counts], str | None]:
    """Return the counters of the hours ``first`` to ``last``, and the store's error, if any."""

    def remembered() -> Mapping[HourKey, Counts]:
        counted = services.journal.counted
        return {key: row for key, row in counted.items() if first <= key.hour <= last}

    return await or_remembered(services, services.store.counts(first, last), remembered)


async def record_of(
    services: Services, request_id: str, agent: str | None
) -> dict[str, Any] | None:
    """Return a request's record as data (``accounts.as_data``); None if none is kept.

    ``request_id``: ``last`` is the newest that is no plain one, of ``agent``. Of plain exchanges,
    and while the store fails, there is only what this process remembers.
    """
    last = request_id == LAST

    def is_asked_for(record: Record) -> bool:
        if last:
            return not record.plain and agent in (None, record.agent)
        return record.id == request_id

    newest = next(filter(is_asked_for, reversed(services.records)), None)
    found = [accounts.as_data(newest)] if newest is not None else []
    asked = services.store.record(None if last else request_id, agent)
    one, _ = await or_remembered(services, asked, lambda: None)
    if one is not None:
        with contextlib.suppress(orjson.JSONDecodeError):
            data = orjson.loads(one.body)
            found += [data] if isinstance(data, dict) and "detail" in data else []
    return max(found, key=lambda data: float(data["time"]), default=None)


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
        event_query = EventQuery(kind=kind, since=since, limit=MAX_EVENTS)
        found, failed = await events_of(services, event_query)
        numbered += found
        trouble = failed or trouble
    events = [event for _, event in sorted(numbered, key=lambda entry: entry[0])]
    events = [event for event in events if event["time"] <= query.until]
    remembered, trouble = trouble is not None, trouble or services.store.health.sentence
    query = report.ReportScope(since, query.until, query.agent, trouble, remembered)
    return {"version": __version__, **report.build(query, rows, events, services.settings)}
