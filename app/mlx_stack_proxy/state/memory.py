"""The store that forgets: one process, bounded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .hourly import Counts, Deltas, HourKey, Hourly, hour_of
from .ledger import Ledger
from .store import (
    BreakerState,
    EventQuery,
    Limit,
    Refused,
    Reserved,
    SessionDelta,
    Sessions,
    SessionState,
    Settlement,
)

MOST_EVENTS = 10_000  # whatever the settings say: they lie in memory


class MemoryStore:
    """All of the interface, in this process's memory. The least recently used sessions go first.

    ``session_ttl``, ``events_ttl``: seconds. ``clock``: seconds since the epoch, for events alone.
    """

    trouble: str | None = None

    def __init__(
        self,
        *,
        max_sessions: int,
        window_size: int,
        session_ttl: float,
        events_ttl: float,
        max_events: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = Ledger(
            max_sessions=max_sessions, window_size=window_size, session_ttl=session_ttl
        )
        self._hourly = Hourly()
        self._breakers: dict[str, BreakerState] = {}
        self._events: deque[tuple[int, Mapping[str, Any]]] = deque(
            maxlen=min(max_events, MOST_EVENTS)
        )
        self._next_event = 1
        self._events_ttl = events_ttl
        self._clock = clock

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def load(self, session: str, now: float, limits: Sequence[Limit] = ()) -> SessionState:
        return self._ledger.load(session, now, limits)

    async def commit(
        self, session: str, delta: SessionDelta, now: float, settlement: Settlement | None = None
    ) -> Mapping[str, int]:
        if delta.counts:
            await self.add_counts(delta.counts)
        return self._ledger.commit(session, delta, now, settlement)

    async def delete(self, session: str) -> bool:
        return self._ledger.delete(session)

    async def sessions(self, now: float, offset: int = 0, limit: int = 100) -> Sessions:
        return Sessions(self._ledger.page(now, offset, limit))

    async def count_sessions(self, now: float) -> int:
        return self._ledger.count_sessions(now)

    async def reserve(
        self,
        ticket: str,
        limits: Sequence[Limit],
        tokens: int,
        now: float,
        expires: float,
        *,
        partial: bool = False,
    ) -> Reserved | Refused:
        return self._ledger.reserve(ticket, limits, tokens, now, expires, partial=partial)

    async def settle(
        self, ticket: str, amounts: Mapping[Limit, int], now: float
    ) -> Mapping[str, int]:
        return self._ledger.settle(ticket, amounts, now)

    async def breakers(self) -> Mapping[str, BreakerState]:
        return dict(self._breakers)

    async def save_breaker(self, tier: str, state: BreakerState) -> None:
        self._breakers[tier] = state

    async def add_events(self, events: Sequence[Mapping[str, Any]]) -> None:
        self._forget_events()
        for event in events:
            self._events.append((self._next_event, event))
            self._next_event += 1

    async def events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        found = self._found(query)
        if query.after is not None:
            return found[: query.limit]
        return found[max(0, len(found) - query.limit) :]

    async def count_events(self, query: EventQuery) -> int:
        return len(self._found(query))

    async def add_counts(self, deltas: Deltas) -> None:
        self._hourly.add(deltas)
        self._hourly.forget(hour_of(self._clock() - self._events_ttl))

    async def counts(self, first: int, last: int) -> Mapping[HourKey, Counts]:
        return self._hourly.find(first, last)

    def _found(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        self._forget_events()
        after = query.after or 0
        before = self._next_event if query.before is None else query.before
        return [
            entry
            for entry in self._events
            if after < entry[0] < before and query.asks_for(entry[1])
        ]

    def _forget_events(self) -> None:
        oldest = self._clock() - self._events_ttl
        while self._events and self._events[0][1]["time"] < oldest:
            self._events.popleft()
