"""The store of one process, in a file that outlives it or in memory (``MemoryFile``).

The process owns its file, so its memory (``Image``) has the truth: loading and reserving cost no
I/O, and reservations die with the process that made them. A method that changes something returns
when the change is in the file (``Keeper``). While the file fails, counting goes on in memory, and
all of it is written when the file works again. Events are read from the file, for memory has only
those that are still to be written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .hourly import Counts, HourKey
from .image import Image
from .keeper import Keeper
from .ledger import Ledger
from .state_file import MemoryFile, StateFile
from .store import (
    BreakerState,
    Change,
    EventQuery,
    Limit,
    Record,
    Refused,
    Reserved,
    Sessions,
    SessionState,
    Sizes,
    StoreError,
)


class SqliteStore:
    """The store of ``state.backend: sqlite`` and ``memory``."""

    def __init__(
        self, path: str | None, sizes: Sizes, clock: Callable[[], float] = time.time
    ) -> None:
        """``path``: the file's, ``~`` is allowed; None: keep all in memory.

        ``clock``: seconds since the epoch, for the housekeeping.
        """
        self._image = Image(Ledger(sizes))
        file = MemoryFile() if path is None else StateFile(path)
        self._keeper = Keeper(file, self._image, sizes, clock)

    @property
    def trouble(self) -> str | None:
        return self._keeper.trouble

    async def open(self) -> None:
        await self._keeper.start()

    async def close(self) -> None:
        await self._keeper.stop()

    async def load(self, session: str, now: float, limits: Sequence[Limit] = ()) -> SessionState:
        return self._ledger().load(session, now, limits)

    async def write(self, change: Change, now: float) -> Mapping[str, int]:
        self._ledger()
        tokens_before = self._image.write(change, now)
        await self._keeper.written()
        return tokens_before

    async def delete(self, session: str) -> bool:
        was_known = self._ledger().delete(session)
        await self._keeper.written()
        return was_known

    async def sessions(self, now: float, offset: int = 0, limit: int = 100) -> Sessions:
        return Sessions(self._ledger().page(now, offset, limit))

    async def count_sessions(self, now: float) -> int:
        return self._ledger().count_sessions(now)

    async def reserve(
        self,
        ticket: str,
        limits: Sequence[Limit],
        tokens: int,
        now: float,
        expires: float,
        *,
        least: int | None = None,
    ) -> Reserved | Refused:
        return self._ledger().reserve(ticket, limits, tokens, now, expires, least=least)

    async def breakers(self) -> Mapping[str, BreakerState]:
        return dict(self._ledger().breakers)

    async def events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        self._ledger()
        return await self._keeper.ask(lambda file: file.find_events(query))

    async def count_events(self, query: EventQuery) -> int:
        self._ledger()
        return await self._keeper.ask(lambda file: file.count_events(query))

    async def records(self, agent: str | None = None, limit: int = 1) -> list[Record]:
        self._ledger()
        return await self._keeper.ask(lambda file: file.find_records("agent", agent, limit))

    async def record(self, request_id: str) -> Record | None:
        self._ledger()
        found = await self._keeper.ask(lambda file: file.find_records("id", request_id, 1))
        return found[0] if found else None

    async def counts(self, first: int, last: int) -> Mapping[HourKey, Counts]:
        return self._ledger().counts_of(first, last)

    def _ledger(self) -> Ledger:
        """Return the ledger. Raises StoreError if the file has not been read yet."""
        if not self._keeper.known:
            raise StoreError(self._keeper.trouble)
        return self._image.ledger
