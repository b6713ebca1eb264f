"""What is written down beside the sessions: events, the hours' counters, the breakers' states.

Nobody waits for it but who ends an exchange: what is told in one moment goes to the store in one
call, in its order, and of a breaker only the last state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ..state.hourly import Deltas, HourKey, merge
from ..state.store import BreakerState, Store, StoreError
from . import log


class Journal:
    """``on_failure``: told what the store could not keep, which is lost."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.on_failure: Callable[[StoreError], None] = lambda error: None
        self._events: list[Mapping[str, Any]] = []
        self._counts: dict[HourKey, dict[str, float]] = {}
        self._breakers: dict[str, BreakerState] = {}
        self._next: asyncio.Future[None] | None = None  # done when those above are written,
        self._current: asyncio.Future[None] | None = None  # and those that are on their way
        self._task: asyncio.Task[None] | None = None

    def add(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Keep events; each has ``time``, ``kind``, ``session``."""
        if events:
            self._events += events
            self._write_soon()

    def count(self, deltas: Deltas) -> None:
        """Add to the hours' counters."""
        if deltas:
            merge(self._counts, deltas)
            self._write_soon()

    def set_breaker(self, tier: str, state: BreakerState) -> None:
        self._breakers[tier] = state
        self._write_soon()

    async def written(self) -> None:
        """Until the store has, or has refused, all that was told so far."""
        last = self._next or self._current
        if last is not None:
            await asyncio.shield(last)

    def _write_soon(self) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if self._task is None:
                self._task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while self._next is not None:
            done = self._current = self._next
            events, counts, breakers = self._events, self._counts, self._breakers
            self._next, self._events, self._counts, self._breakers = None, [], {}, {}
            try:
                await self._write_down(events, counts, breakers)
            except Exception as error:  # or whoever ends an exchange would wait for ever
                log.fault("journal_fault", error)
            finally:
                self._current = None
                done.set_result(None)
        self._task = None

    async def _write_down(
        self,
        events: list[Mapping[str, Any]],
        counts: Deltas,
        breakers: Mapping[str, BreakerState],
    ) -> None:
        for tier, state in breakers.items():
            await self._kept(self._store.save_breaker(tier, state))
        if counts:
            await self._kept(self._store.add_counts(counts))
        if events:
            await self._kept(self._store.add_events(events))

    async def _kept(self, write: Awaitable[None]) -> None:
        try:
            await write
        except StoreError as error:
            self.on_failure(error)
