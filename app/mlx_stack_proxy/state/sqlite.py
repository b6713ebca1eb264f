"""The store of one process, in a SQLite file that outlives it or in SQLite's memory.

Each change is a job of :class:`.Transactions`; the rules by which it changes the tables are in
:class:`.Database`. Reservations are in memory and die with the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .database import Database
from .hourly import Counts, HourKey
from .spending import SESSION, Spending
from .sqlite_file import StateFile
from .store import (
    BreakerState,
    Change,
    EventQuery,
    KeptRecord,
    Limit,
    ReservationRefused,
    Reserved,
    Sessions,
    SessionState,
    Sizes,
)
from .transactions import Transactions


class SqliteStore(Transactions):
    """The store of ``state.backend: sqlite`` and ``memory``."""

    def __init__(
        self, path: str | None, sizes: Sizes, clock: Callable[[], float] = time.time
    ) -> None:
        """``path``: the file's, ``~`` is allowed; None: keep all in memory.

        ``clock``: seconds since the epoch, for the housekeeping.
        """
        super().__init__(StateFile(path) if path is not None else None, sizes, clock)

    async def load(self, session: str, now: float, limits: Sequence[Limit] = ()) -> SessionState:
        reserved = self._reservations.in_scope(SESSION + session, now)
        with self.errors():
            return self.readable().load(session, now, limits, reserved)

    async def write(self, change: Change, now: float) -> Mapping[str, int]:
        settlement = change.settlement
        ticket = settlement.ticket if settlement is not None else ""
        found: Mapping[str, int]
        found = await self.do(lambda db: db.write(change, now), ticket=ticket)
        return found

    async def reserve(
        self,
        ticket: str,
        limits: Sequence[Limit],
        tokens: int,
        now: float,
        expires: float,
        *,
        least: int | None = None,
    ) -> Reserved | ReservationRefused:
        def run(db: Database) -> Reserved | ReservationRefused:
            spending = Spending(db.connection, limits, now, self._sizes.session_ttl)
            found = self._reservations.reserve(
                ticket, limits, tokens, now, expires, least=least, spending=spending
            )
            spending.save()  # what is out of date goes, so that no clock that jumps brings it back
            return found

        reserved: Reserved | ReservationRefused = await self.do(run, reads=True)
        return reserved

    # What operators ask

    async def delete(self, session: str) -> bool:
        return bool(await self.do(lambda db: db.delete(session)))

    async def sessions(
        self, now: float, offset: int = 0, limit: int = 100, agent: str | None = None
    ) -> Sessions:
        found = await self.ask(lambda db: db.sessions(now, offset, limit, agent))
        for number, state in enumerate(found):
            reserved = self._reservations.in_scope(SESSION + state.session, now)
            found[number] = replace(state, reserved=reserved)
        return found

    async def count_sessions(self, now: float, agent: str | None = None) -> int:
        return await self.ask(lambda db: db.count_sessions(now, agent))

    async def breakers(self) -> Mapping[str, BreakerState]:
        return await self.ask(Database.breakers)

    async def events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        return await self.ask(lambda db: db.events(query))

    async def count_events(self, query: EventQuery) -> int:
        return await self.ask(lambda db: db.count_events(query))

    async def record(
        self, request_id: str | None = None, agent: str | None = None
    ) -> KeptRecord | None:
        return await self.ask(lambda db: db.record(request_id, agent))

    async def counts(self, first: int, last: int) -> Mapping[HourKey, Counts]:
        return await self.ask(lambda db: db.counts(first, last))
