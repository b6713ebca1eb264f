"""Write a state file whenever its image in memory changes: group commit, failures, housekeeping.

A task in the event loop decides, and one thread does the file's blocking work. The task writes all
changes in one transaction and then wakes the callers who wait for them; changes that come meanwhile
are in the next transaction. Transactions begin at least ``APART_SECONDS`` apart, so that under load
one transaction serves several callers. When the file fails, the waiters get the error at once,
memory loses nothing, and the task opens and writes the file each second until that succeeds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ..telemetry import log
from .hourly import hour_of
from .image import Image
from .state_file import FileUnusable, StateFile
from .store import Sizes, StoreError
from .worker import Worker

RETRY_SECONDS = 1.0  # between two tries while the file fails
STALL_SECONDS = 5.0  # a job that takes longer in the thread is reported as trouble until it ends
CLOSE_SECONDS = 10.0  # how long `stop` waits for the disk, twice
HOUSEKEEPING_SECONDS = 30.0
PAUSE_SECONDS = 0.05  # between two steps of one housekeeping
STEP = 500  # how many rows of each kind one step forgets at most
APART_SECONDS = 0.002  # from one transaction's begin to the next one's

Result = TypeVar("Result")


class Keeper:
    """Owns a store's state file: ``SqliteStore`` changes the image, then waits for ``written``."""

    def __init__(
        self,
        file: StateFile,
        image: Image,
        sizes: Sizes,
        clock: Callable[[], float],
    ) -> None:
        """``clock``: seconds since the epoch, for the housekeeping alone."""
        self._file = file
        self._image = image
        self._sizes = sizes
        self._clock = clock
        self._next_transaction = 0.0  # when it may begin, on the event loop's clock
        # Why the store doesn't work now, as a sentence; None: all is well.
        self.trouble: str | None = f"{file.path} is not open yet"
        self.known = False  # whether the file has been read into the image
        self._error: StoreError | None = None  # why the file can't be written now
        self._waiting: list[asyncio.Future[None]] = []  # callers whom a later transaction wakes
        self._in_flight: list[asyncio.Future[None]] = []  # callers whom the running one wakes
        self._complained = False  # whether trouble was logged since the file last worked

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._work_due = asyncio.Event()  # set: there may be something to write
        self._stopping = asyncio.Event()
        self._housekeeping_due = self._loop.time() + HOUSEKEEPING_SECONDS  # when to keep house next
        self._worker = Worker("mlx-stack-state")
        await self._work()
        if isinstance(self._error, FileUnusable):
            await self._work()  # sets the file aside and makes a new one
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Write all changes, if the file works, and close it."""
        self._stopping.set()
        self._work_due.set()
        await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        self._task.cancel()
        self.trouble = f"{self._file.path} is closed"
        self._fail_waiters(StoreError(self.trouble))
        await asyncio.wait([self._worker.do(self._file.close)], timeout=CLOSE_SECONDS)
        self._worker.stop()

    def written(self) -> asyncio.Future[None]:
        """Return a future that is done when all changes so far are in the file.

        Raises StoreError at once if there is trouble; the future raises StoreError, too.
        """
        if self.trouble is not None:
            raise StoreError(self.trouble)
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waiter)
        self._work_due.set()
        return waiter

    async def ask(self, job: Callable[[StateFile], Result]) -> Result:
        """Run a job that reads the file, in the thread; return its result. Raises StoreError."""
        if self._error is not None:
            raise StoreError(self.trouble)
        try:
            return await self._in_thread(lambda: job(self._file))
        except FileUnusable as error:
            self._fail(error)
            raise

    # The task

    async def _run(self) -> None:
        while not self._stopping.is_set():
            fails = self._error is not None
            until = self._loop.time() + RETRY_SECONDS if fails else self._housekeeping_due
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await (self._stopping if fails else self._work_due).wait()
            await self._work()
        while self._image.is_dirty() and self._error is None:
            await self._work()

    async def _work(self) -> None:
        """Open the file if it isn't open or fails, write changes, and keep house if that is due."""
        self._work_due.clear()
        try:
            if self._error is not None or not self.known:
                await self._open()
                while self._image.is_dirty():
                    await self._write()
                self._error = None
                self._report_working()
            await self._write()
            if self._loop.time() >= self._housekeeping_due:
                unfinished = await self._keep_house()
                pause = PAUSE_SECONDS if unfinished else HOUSEKEEPING_SECONDS
                self._housekeeping_due = self._loop.time() + pause
        except Exception as error:
            self._fail(error)

    async def _write(self) -> None:
        """Write one transaction; let another one follow if it can't hold all changes."""
        await asyncio.sleep(self._next_transaction - self._loop.time())
        self._next_transaction = self._loop.time() + APART_SECONDS
        batch = self._image.take()
        if self._image.is_dirty():  # the waiters' changes may be in the next transaction
            self._work_due.set()
        else:
            self._in_flight, self._waiting = self._waiting, []
        if batch:
            try:
                await self._in_thread(partial(self._file.write, batch))
            except BaseException:
                self._image.put_back(batch)
                raise
        in_flight, self._in_flight = self._in_flight, []
        _tell(in_flight, None)

    async def _open(self) -> None:
        if isinstance(self._error, FileUnusable):
            aside = await self._in_thread(partial(self._file.set_aside, self._error.label))
            log.get().error("state_file_set_aside", reason=str(self._error), now=str(aside))
        is_new = await self._in_thread(self._file.open)
        if not self.known:
            contents, last_event, odd = await self._in_thread(self._file.read)
            if odd:
                log.get().error("state_rows_set_aside", rows=odd, path=str(self._file.path))
            for kind, table in self._image.ledger.tables.items():
                table.restore(contents[kind])
            self._image.next_event = last_event + 1
            self.known = True
        elif is_new:
            self._image.all_changed()

    async def _keep_house(self) -> bool:
        """Forget some rows that are too old or too many; return whether there may be more."""
        self._work_due.set()  # so that the forgotten rows are deleted from the file
        if await self._in_thread(self._file.replaced):
            log.get().error("state_file_gone", path=str(self._file.path), now="written anew")
            await self._open()
        now = self._clock()
        if self._image.ledger.forget_idle(now, STEP):
            return True
        self._image.ledger.forget_empty_hours(now)
        oldest_kept = now - self._sizes.events_ttl
        self._image.ledger.forget_counts(hour_of(oldest_kept))
        forget = partial(self._file.forget_events, oldest_kept, self._sizes.max_events, STEP)
        if await self._in_thread(forget) == STEP:
            return True
        sizes = self._sizes
        await self._in_thread(
            lambda: self._file.forget_records(sizes.max_records, sizes.max_record_bytes)
        )
        await self._in_thread(self._file.sync)
        return False

    # Failures

    async def _in_thread(self, job: Callable[[], Result]) -> Result:
        """Run ``job`` in the thread and wait for its end; report trouble if it takes too long."""
        stall = self._loop.call_later(STALL_SECONDS, self._report_stall)
        try:
            result = await self._worker.do(job)
        finally:
            stall.cancel()
        if self.trouble is not None and self._error is None and self.known:
            self._report_working()
        return result

    def _report_stall(self) -> None:
        self._report_trouble(f"{self._file.path}: the disk takes over {STALL_SECONDS:g} s")
        self._fail_waiters(StoreError(self.trouble))

    def _fail(self, error: BaseException) -> None:
        """Note that the file fails: from now on only the task uses it, and callers are refused."""
        if not isinstance(error, StoreError):  # a bug of ours: log its place and go on
            log.fault("store_fault", error)
            error = StoreError(f"{self._file.path} can't be written: {type(error).__name__}")
        self._error = error
        self._work_due.set()
        self._report_trouble(str(error))
        self._fail_waiters(error)

    def _report_trouble(self, sentence: str) -> None:
        if sentence != self.trouble:
            log.get().error("store_fails", reason=sentence)
            self._complained = True
        self.trouble = sentence

    def _report_working(self) -> None:
        self.trouble = None
        if self._complained:
            log.get().info("store_works", path=str(self._file.path))
            self._complained = False

    def _fail_waiters(self, error: StoreError) -> None:
        waiting = [*self._in_flight, *self._waiting]
        self._in_flight, self._waiting = [], []
        _tell(waiting, error)


def _tell(waiting: list[asyncio.Future[None]], error: StoreError | None) -> None:
    for waiter in waiting:
        if waiter.done():  # its request was cancelled
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(StoreError(str(error)))
