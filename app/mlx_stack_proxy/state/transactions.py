"""The transactions of a SQLite store: jobs on one connection, committed in a thread.

Jobs run on the event loop, where they touch nothing but SQLite's cache; jobs that come while the
disk is busy then share a transaction. A thread commits it, because a disk may take its time, and
then the callers are woken. Meanwhile a second connection can be read, and a third serves what
operators ask, in a thread of its own.

While the file fails, the jobs go on in a copy of it in memory, and callers of changes get the error
at once; when the file works again, the copy replaces its content.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from .. import log
from ..daemon_threads import Worker
from . import sqlite_file
from .database import Database
from .reservations import Reservations
from .sqlite_file import StateFile, refusal
from .store import NotSent, Sizes, StoreError
from .trouble import Trouble

RETRY_SECONDS = 1.0  # after the file began to fail; each further pause is twice as long
LONGEST_RETRY_SECONDS = 30.0
STALL_SECONDS = 5.0  # a commit that takes longer is reported as trouble until it ends
CLOSE_SECONDS = 10.0  # how long `close` waits for the disk
HOUSEKEEPING_SECONDS = 30.0
PAUSE_SECONDS = 0.05  # between two steps of one housekeeping
MOST_JOBS = 50  # in a transaction, so that the event loop is not held for long
MOST_WAITING = 10_000  # jobs that wait for a disk that hangs, the newest

Result = TypeVar("Result")
# SQLite's errors that are the fault of a job's values and not of the file.
_OF_VALUES = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
)


@dataclass(slots=True, eq=False)
class _Job:
    """Something to do with the tables."""

    run: Callable[[Database], Any]
    waiter: asyncio.Future[Any]
    reads: bool = False  # its result needs no commit, and it isn't repeated if the file fails
    slow: bool = False  # it is run in the thread, alone
    ticket: str = ""  # a reservation that ends with it
    result: Any = None

    def end(self, error: BaseException | None = None) -> None:
        """Tell the caller the job's result, or the error, unless that was done or nobody waits."""
        if self.waiter.done():
            return
        if error is None:
            self.waiter.set_result(self.result)
        else:
            self.waiter.set_exception(error)
            self.waiter.exception()  # nobody may be waiting any more


class Transactions:
    """A store's connections, and what is done with them."""

    def __init__(
        self,
        file: StateFile | None,
        sizes: Sizes,
        clock: Callable[[], float],
    ) -> None:
        """``file``: None: keep all in memory. ``clock``: seconds, for the housekeeping."""
        self._file = file
        self._where = str(file.path) if file is not None else ":memory:"
        self._sizes = sizes
        self._clock = clock
        self._reservations = Reservations()
        self._jobs: deque[_Job] = deque()
        self._in_flight: list[_Job] | None = None  # the jobs that the thread commits
        self._watch: asyncio.TimerHandle | None = None  # when to look whether it hangs
        self._busy = False  # the thread is using the first connection
        self._db: Database | None = None  # the first connection, or its stand-in in memory
        self._spare: Database | None = None  # the second one; None: without a file that works
        self._operators: Database | None = None  # the third; None likewise
        self._error: StoreError | None = None  # why the file can't be used now
        self.health = Trouble(f"{self._where} is not open yet")
        self._wake = asyncio.Event()  # set: the file failed, or the store is to close
        self._closing = False

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer, self._reader = Worker("mlx-stack-state"), Worker("mlx-stack-state-read")
        if self._file is None:
            self._use([sqlite_file.in_memory()])
            self.health.end()
        else:
            await self._repair(self._file)
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Wait until all changes are written, if the file works, and close it."""
        self._closing = True
        self._wake.set()
        with contextlib.suppress(StoreError):
            await asyncio.wait([self.do(lambda db: None)], timeout=CLOSE_SECONDS)
        await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        self._task.cancel()
        self.health.sentence = f"{self._where} is closed"
        self._fail_waiters(self._jobs)
        first, others = self._db, (self._spare, self._operators)
        self._db = self._spare = self._operators = None
        closed = self._reader.do(partial(_close, others)), self._writer.do(partial(_close, [first]))
        await asyncio.wait(closed, timeout=CLOSE_SECONDS)
        if self._file is not None:
            self._file.unlock()
        self._reader.shutdown()
        self._writer.shutdown()

    def readable(self) -> Database:
        """Return a connection to read through on the event loop. Raises StoreError."""
        return self._spare if self._busy and self._spare is not None else self._known()

    async def ask(self, question: Callable[[Database], Result]) -> Result:
        """Answer a question through the third connection, in its thread; in memory in place."""
        db = self._known()
        with self.errors():
            if self._operators is None:
                return question(db)
            return await self._reader.do(partial(question, self._operators))

    def _known(self) -> Database:
        """Return the first connection. Raises StoreError if the file has not been read yet."""
        if self._db is None:
            raise StoreError(self.health.sentence)
        return self._db

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise refusal(self._where, "can't be read", error) from error

    # Jobs and transactions

    def do(
        self,
        run: Callable[[Database], Any],
        *,
        reads: bool = False,
        slow: bool = False,
        ticket: str = "",
    ) -> asyncio.Future[Any]:
        """Run a job as soon as all jobs before it are done; the future gets its result.

        Raises StoreError at once if there is trouble; the future raises StoreError, too.
        """
        self._known()
        job = _Job(run, self._loop.create_future(), reads, slow, ticket)
        hangs = self._busy and self.health.sentence is not None
        if hangs and reads:
            raise NotSent(self.health.sentence)
        if len(self._jobs) >= MOST_WAITING:
            too_many = f"{self._where}: over {MOST_WAITING} changes wait for the disk"
            self._jobs.popleft().end(StoreError(too_many))
        self._jobs.append(job)
        if not self._busy:
            self._transact()
        elif hangs:
            self._fail_waiters([job])
        return job.waiter

    def _transact(self) -> None:
        """Run jobs that wait in one transaction, have the thread commit it, and so on."""
        while self._jobs and not self._busy:
            db, jobs = self._known(), [self._jobs.popleft()]
            if jobs[0].slow and self._spare is not None:
                self._in_thread(partial(self._run_and_commit, db, jobs), jobs)
                return
            while self._jobs and not self._jobs[0].slow and len(jobs) < MOST_JOBS:
                jobs.append(self._jobs.popleft())
            try:
                self._run_jobs(db, jobs)
                for job in jobs:
                    if job.reads:
                        job.end()
                if self._spare is not None and db.connection.in_transaction:
                    self._in_thread(db.connection.commit, jobs)
                    return
                db.connection.commit()
            except sqlite3.Error as error:
                self._fail(error, jobs)
                return
            self._end(jobs)

    def _run_jobs(self, db: Database, jobs: list[_Job]) -> None:
        """Run jobs in a transaction, which stays open, without those whose values no row holds."""
        while jobs:
            if not all(job.reads for job in jobs):  # a change reads in its transaction, too
                db.connection.execute("BEGIN IMMEDIATE")
            try:
                for job in jobs:
                    self._reservations.release(job.ticket)
                    job.ticket = ""
                    job.result = job.run(db)
                return
            except BaseException as error:
                db.connection.rollback()
                if isinstance(error, sqlite3.Error) and not isinstance(error, _OF_VALUES):
                    raise
                jobs.remove(job)
                self._loop.call_soon_threadsafe(job.end, error)

    def _run_and_commit(self, db: Database, jobs: list[_Job]) -> None:
        self._run_jobs(db, jobs)
        db.connection.commit()

    def _in_thread(self, work: Callable[[], None], jobs: list[_Job]) -> None:
        """Have the thread do the work with the first connection that ends the jobs."""
        self._busy = True
        self._in_flight = jobs
        if self._watch is None:
            self._watch = self._loop.call_later(STALL_SECONDS, self._look, None)
        self._writer.call(work, self._thread_is_done)

    def _look(self, seen: list[_Job] | None) -> None:
        """Report a stall if the thread is still busy with the jobs that were seen before."""
        self._watch = None
        if self._in_flight is None:
            return
        if self._in_flight is seen:
            self._report_stall(seen)
        self._watch = self._loop.call_later(STALL_SECONDS, self._look, self._in_flight)

    def _thread_is_done(self, _: Any, error: BaseException | None) -> None:
        self._busy = False
        jobs, self._in_flight = self._in_flight or [], None
        if error is not None:
            self._fail(error, jobs)
            return
        if self.health.sentence is not None and self._error is None:
            self.health.end(path=self._where)
        self._end(jobs)
        self._transact()

    def _end(self, jobs: list[_Job]) -> None:
        if self._error is not None:
            self._fail_waiters(jobs)
        for job in jobs:
            job.end()

    # The task

    async def _run(self) -> None:
        pause = RETRY_SECONDS
        while True:
            seconds = HOUSEKEEPING_SECONDS if self._error is None else pause
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            self._wake.clear()
            if self._closing:
                return
            try:
                if self._error is None:
                    pause = RETRY_SECONDS
                    await self._keep_house()
                elif self._file is not None:
                    await self._repair(self._file)
                    # The copying of what a full disk has no room for is not tried each second.
                    pause = min(2 * pause, LONGEST_RETRY_SECONDS) if self._db else RETRY_SECONDS
            except StoreError:
                pass  # `_fail` has reported it
            except Exception as error:
                log.fault("store_fault", error)

    async def _keep_house(self) -> None:
        """Forget what is too old or too many, in small steps; put commits on the disk."""
        try:
            if self._file is not None and await self._reader.do(self._file.replaced):
                log.get().error("state_file_gone", path=self._where, now="written anew")
                raise sqlite3.OperationalError("it was deleted or replaced")
            more = True
            while more:
                more = await self.do(lambda db: db.keep_house(self._clock()), slow=True)
                await asyncio.sleep(PAUSE_SECONDS if more else 0)
            await self.ask(Database.sync)
        except sqlite3.Error as error:
            await self.do(partial(_raise, error), slow=True)

    async def _repair(self, file: StateFile) -> None:
        """Open the file; if it has failed in use, give it the content of its stand-in."""
        connections: list[sqlite3.Connection] = []
        try:
            await self._reader.do(partial(_close, ()))  # the old connections are closed then
            connections = await self._writer.do(partial(file.open, self._error))
            if self._db is not None:
                self._busy = True
                await self._writer.do(
                    partial(sqlite_file.copy, self._db.connection, connections[0])
                )
        except (StoreError, sqlite3.Error) as error:
            await self._writer.do(partial(_close, connections))
            self._error = refusal(self._where, "can't be written", error)
            self.health.begin(str(self._error))
        else:
            self._use(connections)
            self._error = None
            self.health.end(path=self._where)
        self._busy = False
        self._transact()

    def _use(self, connections: Sequence[sqlite3.Connection]) -> None:
        """Use connections to a file that works, or one to a database in memory."""
        old = self._spare, self._operators, self._db if self._spare is None else None
        databases = [Database(connection, self._sizes) for connection in connections]
        self._db, self._spare, self._operators = (*databases, None, None)[:3]
        self._reader.do(partial(_close, old))

    # Failures

    def _fail(self, error: BaseException, jobs: Sequence[_Job]) -> None:
        """Go on in a copy in memory, with the jobs that the file doesn't have."""
        if not isinstance(error, sqlite3.Error):  # a bug of ours: log its place and go on
            log.fault("store_fault", error)
        self._error = refusal(self._where, "can't be written", error)
        self.health.begin(str(self._error))
        self._fail_waiters(jobs)
        self._fail_waiters(self._jobs)
        self._busy = True
        again = [job for job in jobs if not job.slow and not (job.reads and job.waiter.done())]
        copied = self._writer.do(
            partial(sqlite_file.stand_in, self._known().connection, self._error)
        )
        copied.add_done_callback(partial(self._go_on_in_memory, again))

    def _go_on_in_memory(
        self, jobs: Sequence[_Job], copied: asyncio.Future[sqlite3.Connection]
    ) -> None:
        self._use([copied.result()])
        self._jobs.extendleft(reversed(jobs))
        self._busy = False
        self._transact()
        self._wake.set()

    def _fail_waiters(self, jobs: Iterable[_Job]) -> None:
        """Tell the callers of changes the trouble; the changes themselves are not lost by that."""
        for job in jobs:
            if not job.reads or self._db is None:
                job.end(StoreError(self.health.sentence))

    def _report_stall(self, jobs: list[_Job]) -> None:
        self.health.begin(f"{self._where}: the disk takes over {STALL_SECONDS:g} s")
        for job in (*jobs, *self._jobs):
            job.end(StoreError(self.health.sentence))


def _raise(error: Exception, db: Database) -> None:
    raise error


def _close(opened: Iterable[Database | sqlite3.Connection | None]) -> None:
    for one in opened:
        connection = one.connection if isinstance(one, Database) else one
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
