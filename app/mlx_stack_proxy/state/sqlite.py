"""The store of one process, in a SQLite file that outlives it or in SQLite's memory.

The event loop reads through one connection and changes rows through another, where it touches
nothing but SQLite's cache; a thread commits, because a disk may take its time. Changes that come
meanwhile share the next transaction. What operators ask has a connection of its own, in a thread.

A change that can't be written stays in the queue until the file works again, and its caller gets
the error at once. Meanwhile sessions are read as they were. Reservations are in memory, and die
with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from sqlite3 import DataError, IntegrityError, InterfaceError, ProgrammingError
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from .. import log, tasks
from ..daemon_threads import Worker
from . import sqlite_file
from .database import Database
from .hourly import Counts, HourKey
from .sqlite_file import FileUnusable, StateFile, refusal
from .store import (
    SESSION,
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
    StoreError,
)
from .trouble import Trouble

RETRY_SECONDS = 1.0  # between two tries while the file fails
STALL_SECONDS = 5.0  # a commit that takes longer is reported as trouble until it ends
CLOSE_SECONDS = 10.0  # how long `close` waits for the disk
HOUSEKEEPING_SECONDS = 30.0
PAUSE_SECONDS = 0.05  # between two steps of one housekeeping
MAX_JOBS = 50  # in a transaction, so that the event loop is not held for long
MAX_WAITING = 10_000  # jobs that wait for a file that fails or hangs, the newest

Result = TypeVar("Result")
# SQLite's errors that are the fault of a job's values and not of the file.
_OF_VALUES = (DataError, IntegrityError, InterfaceError, ProgrammingError)


class _Ticket(NamedTuple):
    """Tokens that a running exchange has set aside in each of some scopes."""

    scopes: frozenset[str]
    tokens: int
    expires: float


@dataclass(slots=True, eq=False)
class _Job:
    """A change of the tables."""

    run: Callable[[Database], Any]
    waiter: asyncio.Future[Any]
    ticket: str = ""  # a reservation that ends with it
    slow: bool = False  # it is run in the thread, alone, and not again if it fails
    result: Any = None

    def end(self, error: BaseException | None = None) -> None:
        """Pass the result or the error to the caller, unless it has one or has stopped waiting."""
        if not self.waiter.done():
            if error is None:
                self.waiter.set_result(self.result)
            else:
                self.waiter.set_exception(error)
                self.waiter.exception()  # mark it as retrieved: the caller may have left


class SqliteStore:
    """The store of ``state.backend: sqlite`` and ``memory``."""

    def __init__(
        self, path: str | None, sizes: Sizes, clock: Callable[[], float] = time.time
    ) -> None:
        """``path``: the file's, ``~`` is allowed; None: keep all in memory.

        ``clock``: seconds since the epoch, for the housekeeping.
        """
        self._file = StateFile(path) if path is not None else None
        self._where = str(self._file.path) if self._file is not None else ":memory:"
        self._sizes = sizes
        self._clock = clock
        self._tickets: dict[str, _Ticket] = {}
        self._jobs: deque[_Job] = deque()  # waiting
        self._in_flight: list[_Job] | None = None  # being committed by the thread
        self._db: Database | None = None  # for changes; None: no file can be opened
        self._reader: Database | None = None  # to read while the thread uses the first one
        self._error: StoreError | None = None  # why the file can't be used now
        # The last job that waits for a working file; once it is written, the file is healthy.
        self._last: asyncio.Future[Any] | None = None
        self.health = Trouble(f"{self._where} is not open yet")

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = Worker("mlx-stack-state")
        if self._file is None:
            self._db = self._reader = Database(sqlite_file.in_memory(), self._sizes)
            self.health.end()
        else:
            await self._mend(self._file)
        self._watch = self._loop.call_later(STALL_SECONDS, self._look, None)
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Wait until all changes are written, if the file works, and close it."""
        await tasks.end(self._task)
        await asyncio.wait([self._do(lambda db: None)], timeout=CLOSE_SECONDS)
        self._watch.cancel()
        self._error = StoreError(f"{self._where} is closed")
        self.health.sentence = str(self._error)
        for job in self._jobs:
            job.end(self._error)
        closed = self._thread.do(partial(sqlite_file.close, self._connections()))
        self._db = self._reader = None
        await asyncio.wait([closed], timeout=CLOSE_SECONDS)
        if self._file is not None:
            self._file.unlock()
        self._thread.shutdown()

    # Exchanges

    async def load(self, session: str, now: float, limits: Sequence[Limit] = ()) -> SessionState:
        reserved = self._set_aside(SESSION + session, now) if self._tickets else 0
        try:
            return self._read().load(session, now, limits, reserved)
        except sqlite3.Error as error:
            raise refusal(self._where, "can't be read", error) from error

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
        db = self._read()
        minimum = tokens if least is None else min(least, tokens)
        try:
            used = db.used(limits, now)
            for limit in limits:
                if limit.most is None:
                    continue
                remaining = limit.most - used[limit.scope]
                reserved = self._set_aside(limit.scope, now, ticket)
                if reserved + (tokens if reserved else minimum) > remaining:
                    resets_in = db.resets_in(limit, minimum, now)
                    fits_alone = minimum <= remaining
                    return ReservationRefused(limit, used[limit.scope], fits_alone, resets_in)
        except sqlite3.Error as error:
            raise refusal(self._where, "can't be read", error) from error
        self._tickets[ticket] = _Ticket(frozenset(used), tokens, expires)
        self._tickets = {name: one for name, one in self._tickets.items() if one.expires > now}
        return Reserved(used)

    def _set_aside(self, scope: str, now: float, own: str = "") -> int:
        """Return the tokens that tickets other than ``own`` have reserved in a scope."""
        return sum(
            one.tokens
            for ticket, one in self._tickets.items()
            if scope in one.scopes and one.expires > now and ticket != own
        )

    async def write(self, change: Change, now: float) -> Mapping[str, int]:
        ticket = change.settlement.ticket if change.settlement is not None else ""
        before: Mapping[str, int] = await self._do(lambda db: db.write(change, now), ticket)
        return before

    # Operators' queries

    async def delete(self, session: str) -> bool:
        return bool(await self._do(lambda db: db.delete(session)))

    async def sessions(
        self, now: float, offset: int = 0, limit: int = 100, agent: str | None = None
    ) -> Sessions:
        found = await self._ask(lambda db: db.sessions(now, offset, limit, agent))
        for number, state in enumerate(found):
            reserved = self._set_aside(SESSION + state.session, now)
            found[number] = replace(state, reserved=reserved)
        return found

    async def breakers(self) -> Mapping[str, BreakerState]:
        return await self._ask(Database.breakers)

    async def events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        return await self._ask(lambda db: db.events(query))

    async def count_events(self, query: EventQuery) -> int:
        return await self._ask(lambda db: db.count_events(query))

    async def record(
        self, request_id: str | None = None, agent: str | None = None
    ) -> KeptRecord | None:
        return await self._ask(lambda db: db.record(request_id, agent))

    async def counts(self, first: int, last: int) -> Mapping[HourKey, Counts]:
        return await self._ask(lambda db: db.counts(first, last))

    def _read(self) -> Database:
        """Return a connection for the event loop to read through. Raises StoreError.

        The second one has nothing in its cache once the first has written.
        """
        db = self._db if self._in_flight is None else self._reader
        if db is None:
            raise StoreError(self.health.sentence)
        return db

    async def _ask(self, question: Callable[[Database], Result]) -> Result:
        """Run a query in a thread, with its own connection; in place for a database in memory."""
        if self.health.sentence is not None:  # the file lacks jobs that still wait
            raise StoreError(self.health.sentence)
        if (file := self._file) is None:
            return question(self._read())

        def answer() -> Result:
            with contextlib.closing(sqlite_file.connect(file.path, 1.0)) as connection:
                return question(Database(connection, self._sizes))

        try:
            return await asyncio.to_thread(answer)
        except sqlite3.Error as error:
            raise refusal(self._where, "can't be read", error) from error

    # Transactions

    def _do(
        self, run: Callable[[Database], Any], ticket: str = "", *, slow: bool = False
    ) -> asyncio.Future[Any]:
        """Run a job as soon as all jobs before it are done; the future gets its result."""
        job = _Job(run, self._loop.create_future(), ticket, slow)
        if len(self._jobs) >= MAX_WAITING:
            too_many = f"{self._where}: over {MAX_WAITING} changes wait for the disk"
            self._jobs.popleft().end(StoreError(too_many))
        self._jobs.append(job)
        self._transact()
        if self.health.sentence is not None:  # the job is done once the file works again
            job.end(StoreError(self.health.sentence))
        return job.waiter

    def _transact(self) -> None:
        """Run waiting jobs in one transaction, let the thread commit it, and repeat."""
        while self._jobs and self._in_flight is None and self._error is None:
            db, jobs = self._db, [self._jobs.popleft()]
            assert db is not None  # else there is an error
            work: Callable[[], None] = db.connection.commit
            try:
                if jobs[0].slow and self._file is not None:
                    work = partial(self._run, db, jobs, commit=True)
                else:
                    while self._jobs and not self._jobs[0].slow and len(jobs) < MAX_JOBS:
                        jobs.append(self._jobs.popleft())
                    self._run(db, jobs, commit=self._file is None)
            except sqlite3.Error as error:
                self._fail(error, jobs)
                return
            if self._file is None:
                self._end(jobs)
            else:
                self._in_flight = jobs
                self._thread.call(work, self._thread_is_done)

    def _run(self, db: Database, jobs: list[_Job], *, commit: bool) -> None:
        """Run jobs in a transaction, except those whose values no row can hold."""
        while True:
            db.connection.execute("BEGIN IMMEDIATE")
            try:
                for job in jobs:
                    job.result = job.run(db)
                if commit:
                    db.connection.commit()
                return
            except BaseException as error:
                db.connection.rollback()
                if isinstance(error, sqlite3.Error) and not isinstance(error, _OF_VALUES):
                    raise
                jobs.remove(job)
                self._loop.call_soon_threadsafe(job.end, error)

    def _thread_is_done(self, _: Any, error: BaseException | None) -> None:
        jobs, self._in_flight = self._in_flight or [], None
        if error is not None:
            return self._fail(error, jobs)
        all_written = not self._jobs or self._last in [None, *(job.waiter for job in jobs)]
        if self.health.sentence is not None and all_written:
            self._last = None
            self.health.end(path=self._where)
        self._end(jobs)
        self._transact()

    def _end(self, jobs: list[_Job]) -> None:
        for job in jobs:
            self._tickets.pop(job.ticket, None)
            job.end()

    # Failures

    def _fail(self, error: BaseException, jobs: Sequence[_Job]) -> None:
        """Put jobs back into the queue, until the file works again."""
        if not isinstance(error, sqlite3.Error):  # a bug of ours: log its place and go on
            log.fault("store_fault", error)
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.connection.rollback()
        self._error = refusal(self._where, "can't be written", error)
        self._jobs.extendleft(job for job in reversed(jobs) if not job.slow)
        self._trouble(str(self._error), jobs)

    def _trouble(self, sentence: str, jobs: Sequence[_Job]) -> None:
        """Record that the file fails; callers stop waiting, but their changes stay queued."""
        self.health.begin(sentence)
        for job in (*jobs, *self._jobs):
            job.end(StoreError(sentence))

    def _look(self, seen: list[_Job] | None) -> None:
        """Report a stall if the thread is still committing the same jobs as before."""
        if self._in_flight is not None and self._in_flight is seen:
            self._trouble(f"{self._where}: the disk takes over {STALL_SECONDS:g} s", seen)
        self._watch = self._loop.call_later(STALL_SECONDS, self._look, self._in_flight)

    async def _keep(self) -> None:
        """Retry a failing file and do the housekeeping, periodically."""
        house_is_due = self._loop.time() + HOUSEKEEPING_SECONDS
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                if self._error is not None and self._file is not None:
                    await self._mend(self._file)
                elif self._loop.time() >= house_is_due:
                    await self.keep_house()
                    house_is_due = self._loop.time() + HOUSEKEEPING_SECONDS
            except StoreError:
                pass  # `_fail` has reported it
            except Exception as error:
                log.fault("store_fault", error)

    async def _mend(self, file: StateFile) -> None:
        """Open the file, if it isn't open or is broken, and write the waiting jobs."""
        unusable = isinstance(self._error, FileUnusable)
        if self._db is None or unusable or await self._thread.do(file.replaced):
            old, self._db, self._reader = self._connections(), None, None
            self._in_flight = []
            try:
                opened = await self._thread.do(partial(file.open, self._error, old))
            except StoreError as error:
                self._error = error
                self._trouble(str(error), ())
                return
            finally:
                self._in_flight = None
            self._db, self._reader = (Database(one, self._sizes) for one in opened)
            if not self._jobs:
                self.health.end(path=self._where)
        self._error = None
        if self.health.sentence is not None and self._last is None:
            self._last = self._do(lambda db: None)
        self._transact()

    def _connections(self) -> list[sqlite3.Connection]:
        return [db.connection for db in (self._db, self._reader) if db is not None]

    async def keep_house(self) -> None:
        """Delete what is too old or too many, in small steps; sync commits to the disk."""
        more = True
        while more:
            more = await self._do(self._keep_house, slow=True)
            await asyncio.sleep(PAUSE_SECONDS if more else 0)
        if self._file is not None:
            await self._ask(Database.sync)

    def _keep_house(self, db: Database) -> bool:
        if self._file is not None and self._file.replaced():
            log.get().error("state_file_gone", path=self._where, now="written anew")
            raise sqlite3.OperationalError("it was deleted or replaced")
        return db.keep_house(self._clock())
