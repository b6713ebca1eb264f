"""Collect events, records, the hours' counters and the breakers' states for the store.

An exchange that ends takes what is here into its own write, so that it costs one transaction. What
no exchange takes is written in the background shortly after it was recorded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from .. import log
from ..state.hourly import Agents, Deltas, HourKey, merge
from ..state.store import (
    BreakerState,
    Change,
    EventQuery,
    KeptEvent,
    KeptRecord,
    Store,
    StoreError,
)

MAX_EVENTS = 1000  # the newest ones, in memory
MAX_ROWS = 2000  # of counters in memory; the oldest hour goes first
LINGER_SECONDS = 0.1  # that a record waits for the end of an exchange


class Journal:
    """The journal of one process."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        """``clock``: seconds since the epoch."""
        self._store = store
        self._clock = clock
        self.on_failure: Callable[[StoreError], None] = lambda error: None  # if a write fails
        # For the time in which the store can't be read:
        self._newest: deque[Mapping[str, Any]] = deque(maxlen=MAX_EVENTS)
        self.counted: dict[HourKey, dict[str, float]] = {}  # by this process, the last hours
        self._agents = Agents()
        # Recorded, and taken by no write yet:
        self._events: list[KeptEvent] = []
        self._records: list[KeptRecord] = []
        self._counts: list[Deltas] = []
        self._breakers: dict[str, BreakerState] = {}
        self._timer: asyncio.TimerHandle | None = None  # when to write what nobody has taken
        self._task: asyncio.Task[None] | None = None  # writes what no exchange has taken

    def add(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Record events; each has ``time``, ``kind``, ``session``."""
        for event in events:
            try:
                body = orjson.dumps(event).decode()
            except TypeError as error:  # a fault of ours, which is to harm no other event
                log.fault("journal_fault", error)
                continue
            self._events.append(KeptEvent(event["time"], event["kind"], event["session"], body))
            self._newest.append(event)
            self._write_soon()

    def keep(self, record: KeptRecord) -> None:
        """Keep the record of an exchange."""
        self._records.append(record)
        self._write_soon()

    def count(self, deltas: Deltas) -> None:
        """Add to the hours' counters; of too many agents the further ones count as ``other``."""
        if not deltas:
            return
        deltas = {self._agents.bounded(key): counts for key, counts in deltas.items()}
        self._counts.append(deltas)
        merge(self.counted, deltas)
        if len(self.counted) > MAX_ROWS:
            oldest = min(key.hour for key in self.counted)
            for key in [key for key in self.counted if key.hour == oldest]:
                del self.counted[key]
        self._write_soon()

    def set_breaker(self, tier: str, state: BreakerState) -> None:
        self._breakers[tier] = state
        self._write_soon()

    def remembered(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        """Return the newest events that match ``query``, by numbers of their own, oldest first."""
        found = enumerate(self._newest, 1)
        return [(number, event) for number, event in found if query.asks_for(event)]

    def take(self, **fields: Any) -> Change:
        """Return all that waits, as one change for the caller to write, with further ``fields``."""
        rows: dict[HourKey, dict[str, float]] = {}
        for more in self._counts if len(self._counts) > 1 else ():
            merge(rows, more)
        change = Change(
            counts=self._counts[0] if len(self._counts) == 1 else rows,
            breakers=self._breakers,
            events=self._events,
            records=self._records,
            **fields,
        )
        self._counts, self._breakers, self._events, self._records = [], {}, [], []
        return change

    async def written(self) -> None:
        """Write all that waits now; return when that is done, or has failed.

        What is recorded meanwhile is not waited for.
        """
        if self._task is not None:
            await asyncio.shield(self._task)
        self._write_now()
        if self._task is not None:
            await asyncio.shield(self._task)

    def _write_soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LINGER_SECONDS, self._write_now)

    def _write_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None and (self._events or self._records or self._counts or self._breakers):
            self._task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            try:
                await self._store.write(self.take(), self._clock())
            except StoreError as error:
                self.on_failure(error)
        except Exception as error:
            log.fault("journal_fault", error)
        finally:
            self._task = None
            self._write_soon()
