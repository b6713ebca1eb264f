"""Read events and counters from the store; while it fails, from what this process remembers.

And who was last seen asking in which session: the store's sessions don't say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..engine.outcome import RECORD
from ..engine.services import Services
from ..state.hourly import Counts, HourKey
from ..state.store import EventQuery, StoreError
from ..telemetry import accounts

MOST_RECORDS: Final = 1000  # that are searched for who asked
Events = list[tuple[int, Mapping[str, Any]]]


async def events_of(services: Services, query: EventQuery) -> tuple[Events, int, str | None]:
    """Return the events that ``query`` selects, their number without its limit, and the trouble.

    ``trouble``: what is wrong with the store; then the events are those in memory. None: nothing.
    """
    try:
        return (
            await services.store.events(query),
            await services.store.count_events(query),
            None,
        )
    except StoreError as error:
        accounts.store_failed(services, error)
        events = services.journal.remembered(query)
        return events[-query.limit :] if query.limit else [], len(events), str(error)


async def counts_of(
    services: Services, first: int, last: int
) -> tuple[Mapping[HourKey, Counts], str | None]:
    """Return the counters of the hours ``first`` to ``last``, and the trouble as above."""
    try:
        return await services.store.counts(first, last), None
    except StoreError as error:
        accounts.store_failed(services, error)
        counted = services.journal.counted
        return {key: row for key, row in counted.items() if first <= key.hour <= last}, str(error)


async def who_asked(services: Services, agent: str | None = None) -> dict[str, tuple[str, str]]:
    """Return agent and id of the newest known request by session: of ``agent``, if it is given.

    Known are the exchanges that this process remembers, and those whose record the store has.
    """
    query = EventQuery(kind=RECORD, agent=agent, limit=MOST_RECORDS)
    stored, _, _ = await events_of(services, query)
    found = {event["session"]: (event["agent"], event["request_id"]) for _, event in stored}
    for record in services.records:
        if agent in (None, record.agent):
            found[record.session] = (record.agent, record.id)
    return found
