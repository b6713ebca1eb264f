"""Write events, the hours' counters and the breakers' states to the store, in the background.

Callers record something and go on; only the end of an exchange and the end of the process wait
until it is written. A task sends all that was recorded since its last call to the store as one
change: the events in their order, and of each breaker the last state alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import log
from ..state.hourly import Deltas, HourKey, merge
from ..state.store import BreakerState, Change, EventQuery, KeptRecord, Store, StoreError

MOST_EVENTS = 1000  # the newest ones, in memory
MOST_ROWS = 2000  # of counters in memory; the oldest hour goes first


class Journal:
    """The journal of one process."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        """``clock``: seconds since the epoch."""
        self._store = store
        self._clock = clock
        self.on_failure: Callable[[StoreError], None] = lambda error: None  # if a write fails
        self._newest: deque[Mapping[str, Any]] = deque(maxlen=MOST_EVENTS)
        self.counted: dict[HourKey, dict[str, float]] = {}  # by this process, the last hours
        # Recorded since the task's last call to the store:
        self._events: list[Mapping[str, Any]] = []
        self._records: list[KeptRecord] = []
        self._counts: dict[HourKey, dict[str, float]] = {}
        self._breakers: dict[str, BreakerState] = {}
        self._next_write: asyncio.Future[None] | None = None  # done when these are written
        # Done when the running call to the store has ended.
        self._current_write: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def add(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Record events; each has ``time``, ``kind``, ``session``."""
        if events:
            self._events += events
            self._newest.extend(events)
            self._write_soon()

    def keep(self, record: KeptRecord) -> None:
        """Keep the record of an exchange."""
        self._records.append(record)
        self._write_soon()

    def count(self, deltas: Deltas) -> None:
        """Add to the hours' counters."""
        if deltas:
            merge(self._counts, deltas)
            self._write_soon()

    # For the time in which the store can't be read

    def remember(self, deltas: Deltas) -> None:
        """Remember counters, whoever writes them to the store."""
        merge(self.counted, deltas)
        if len(self.counted) > MOST_ROWS:
            oldest = min(key.hour for key in self.counted)
            for key in [key for key in self.counted if key.hour == oldest]:
                del self.counted[key]

    def remembered(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        """Return the newest events that match ``query``, by numbers of their own, oldest first."""
        found = enumerate(self._newest, 1)
        return [(number, event) for number, event in found if query.asks_for(event)]

    def set_breaker(self, tier: str, state: BreakerState) -> None:
        self._breakers[tier] = state
        self._write_soon()

    async def written(self) -> None:
        """Wait until the store has written, or failed to write, all that was recorded so far."""
        last = self._next_write or self._current_write
        if last is not None:
            await asyncio.shield(last)

    def _write_soon(self) -> None:
        if self._next_write is None:
            self._next_write = asyncio.get_running_loop().create_future()
            if self._task is None:
                self._task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while self._next_write is not None:
            done = self._current_write = self._next_write
            change = Change(
                counts=self._counts,
                breakers=self._breakers,
                events=self._events,
                records=self._records,
            )
            self._next_write, self._events, self._counts, self._breakers = None, [], {}, {}
            self._records = []
            try:
                await self._write_down(change)
            except Exception as error:  # uncaught, it would leave `written` waiting forever
                log.fault("journal_fault", error)
            finally:
                self._current_write = None
                done.set_result(None)
        self._task = None

    async def _write_down(self, change: Change) -> None:
        try:
            await self._store.write(change, self._clock())
        except StoreError as error:
            self.on_failure(error)
