"""Keeps a state file abreast of its image in memory: group commit, failures, housekeeping.

The event loop decides, one thread does the work. All that changes while a transaction
runs is written by the next one. A file that fails is opened and written again each second; until
then who waits is told at once, and nothing is lost from memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from .. import log
from .image import Image, Names
from .state_file import FileCorrupt, StateFile
from .state_log import Batch
from .store import StoreError
from .worker import Worker

RETRY_SECONDS = 1.0  # between two tries of a file that fails
STALL_SECONDS = 5.0  # what takes longer in the thread is trouble, until it ends
CLOSE_SECONDS = 10.0  # how long the end waits for the disk
HOUSEKEEPING_SECONDS = 30.0
PAUSE_SECONDS = 0.05  # between two steps of the same housekeeping
STEP = 500  # rows that one step forgets,
SWEEP_STEP = 200  # and writes anew
SWEEP_SECONDS = 3600.0  # after which what doesn't count any more leaves the file, however little

Result = TypeVar("Result")


@dataclass(slots=True)
class _Sweep:
    """``left``: what is still to be written anew; then the log goes, ``up_to`` there.

    ``entries``: how many it has up to there.
    """

    left: Names
    up_to: int
    entries: int


class Keeper:
    """``events``: for how many seconds they are kept, and how many.

    ``clock``: seconds since the epoch, for the housekeeping alone.
    """

    def __init__(
        self,
        file: StateFile,
        image: Image,
        events: tuple[float, int],
        clock: Callable[[], float],
    ) -> None:
        self._file = file
        self._image = image
        self._events_ttl, self._max_events = events
        self._clock = clock
        self.trouble: str | None = f"{file.path} is not open yet"
        self.known = False  # the file was read, so that memory has the truth
        self._error: StoreError | None = None  # what keeps us from writing
        self._waiting: list[asyncio.Future[None]] = []  # for a transaction to come,
        self._in_flight: list[asyncio.Future[None]] = []  # and for the one that runs
        self._began: float | None = None  # the loop's time at which that one began
        self._flush_comes = False
        self._stalled = False
        self._stall_timer: asyncio.TimerHandle | None = None
        self._house_due = False
        self._sweep: _Sweep | None = None
        self._swept = 0.0  # the loop's time
        self._complained = False

    async def start(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()  # something but a mere transaction
        self._stopping: asyncio.Future[None] = loop.create_future()
        self._swept = loop.time()
        self._worker = Worker("mlx-stack-state")
        await self._try()
        if isinstance(self._error, FileCorrupt):
            await self._try()
        self._house_timer = loop.call_later(HOUSEKEEPING_SECONDS, self._ask_for_housekeeping)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Write all there is, and close the file."""
        self._house_timer.cancel()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._stopping.set_result(None)
        self._wanted.set()
        await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        self.trouble = f"{self._file.path} is closed"
        self._tell_all(StoreError(self.trouble))
        await asyncio.wait([self._worker.do(self._file.close)], timeout=CLOSE_SECONDS)
        self._worker.stop()

    def written(self) -> asyncio.Future[None]:
        """Done when all that has changed so far is in the file. Raises StoreError, as it does."""
        if self.trouble is not None:
            raise StoreError(self.trouble)
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waiter)
        self._flush_soon()
        return waiter

    async def ask(self, job: Callable[[StateFile], Result]) -> Result:
        """Read something from the file. Raises StoreError."""
        if self._error is not None:
            raise StoreError(self.trouble)
        try:
            return await self._do(lambda: job(self._file))
        except FileCorrupt as error:
            self._fail(error)
            raise

    # Transactions: no task, for waking one costs as much as the rest

    def _flush_soon(self) -> None:
        """In this turn of the loop others may add to it."""
        if not self._flush_comes and self._began is None:
            self._flush_comes = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_comes = False
        if self._began is not None or self._error is not None:
            return  # another will follow that one, or comes when the file is well
        if not self._image.is_dirty():
            self._tell_all(None)
            return
        if (batch := self._take()) is None:
            return
        self._in_flight = self._served()
        self._began = self._loop.time()
        if self._stall_timer is None:
            self._stall_timer = self._loop.call_later(STALL_SECONDS, self._look_for_stall)
        self._worker.post(partial(self._file.write, batch), partial(self._flushed, batch))

    def _flushed(self, batch: Batch, _: None, error: BaseException | None) -> None:
        waiting, self._in_flight = self._in_flight, []
        self._began = None
        if error is not None:
            self._not_written(batch, waiting, error)
            return
        _tell(waiting, None)
        if self._stalled:
            self._stalled = False
            self._say_well()
        if self._image.is_dirty() or self._waiting:
            self._flush()
        if self._sweep is None and self._image.outgrown(self._file.entries):
            self._ask_for_housekeeping()

    def _take(self) -> Batch | None:
        """What the next transaction writes; None where that can't be told, which is said."""
        try:
            return self._image.take()
        except Exception as error:
            self._fail(error)
            return None

    def _served(self) -> list[asyncio.Future[None]]:
        """Who waits for the batch that was taken."""
        if self._image.is_dirty():
            return []  # what they wait for may be in the next one
        waiting, self._waiting = self._waiting, []
        return waiting

    def _not_written(
        self, batch: Batch, waiting: list[asyncio.Future[None]], error: BaseException
    ) -> None:
        self._image.put_back(batch)
        self._waiting += waiting
        self._fail(error)

    def _look_for_stall(self) -> None:
        self._stall_timer = None
        if self._began is None:
            return
        left = self._began + STALL_SECONDS - self._loop.time()
        if left > 0:
            self._stall_timer = self._loop.call_later(left, self._look_for_stall)
            return
        self._stalled = True
        self._say_stall()
        _tell(self._in_flight, StoreError(self.trouble))

    # The task, for all else

    async def _run(self) -> None:
        while not self._stopping.done():
            if self._error is not None:
                await asyncio.wait([self._stopping], timeout=RETRY_SECONDS)
                await self._try()
                continue
            await self._wanted.wait()
            self._wanted.clear()
            if self._house_due and self._error is None:
                await self._keep_house()
        await self._do(_nothing)  # after the transaction that runs
        if self._error is not None:
            await self._try()
        await self._write_all()

    async def _write_all(self) -> None:
        while self._image.is_dirty() and self._error is None:
            await self._write_batch()
        if self._error is None:
            self._tell_all(None)

    async def _write_batch(self) -> None:
        if (batch := self._take()) is None:
            return
        waiting = self._served()
        try:
            await self._do(partial(self._file.write, batch))
        except Exception as error:
            self._not_written(batch, waiting, error)
            return
        _tell(waiting, None)

    async def _try(self) -> None:
        """Open the file, again or for the first time, and write what it lacks."""
        try:
            if isinstance(self._error, FileCorrupt):
                aside = await self._do(self._file.set_aside)
                log.get().error("state_file_set_aside", reason=str(self._error), now=str(aside))
                self._file_is_new()
            if self.known:
                await self._do(self._file.reopen)
            else:
                self._image.restore(await self._do(self._file.open))
                self.known = True
        except Exception as error:
            self._fail(error)
            return
        self._error = None
        await self._write_all()
        if self._error is None:
            self._say_well()

    def _file_is_new(self) -> None:
        if self.known:
            self._image.all_changed()
        self._sweep = None
        self._error = None

    # Housekeeping

    def _ask_for_housekeeping(self) -> None:
        self._house_due = True
        self._wanted.set()

    async def _keep_house(self) -> None:
        """One small step; the next one follows soon, where there is more to do."""
        self._house_due = False
        now = self._clock()
        more = self._image.ledger.forget_idle(now, STEP)
        try:
            if await self._do(self._file.replaced):
                log.get().error("state_file_gone", path=str(self._file.path), now="written anew")
                await self._do(self._file.reopen)
                self._file_is_new()
            before = now - self._events_ttl
            forget = partial(self._file.forget_events, before, self._max_events, STEP)
            more |= await self._do(forget) == STEP
            more |= await self._sweep_on()
            if not more:
                self._image.ledger.forget_empty_hours(now)
                await self._do(self._file.sync)
        except Exception as error:
            self._fail(error)
        pause = PAUSE_SECONDS if more else HOUSEKEEPING_SECONDS
        self._house_timer.cancel()
        self._house_timer = self._loop.call_later(pause, self._ask_for_housekeeping)
        self._flush_soon()  # for what it has forgotten

    async def _sweep_on(self) -> bool:
        """One step on the way to a file that holds only what counts; whether there are more.

        All that counts is written anew, then the log up to where it ended before is forgotten.
        """
        sweep = self._sweep
        if sweep is None:
            if not self._sweep_is_due():
                return False
            up_to, entries = await self._do(self._file.last_number)
            sweep = self._sweep = _Sweep(self._image.names(), up_to, entries)
        if self._image.write_again(sweep.left, SWEEP_STEP):
            return True
        try:
            await self.written()
        except StoreError:
            return True  # that is said, and tried again
        if await self._do(partial(self._file.forget_log, sweep.up_to, STEP)) == STEP:
            return True
        self._file.entries -= sweep.entries
        self._sweep, self._swept = None, self._loop.time()
        return False

    def _sweep_is_due(self) -> bool:
        entries = self._file.entries
        late = self._loop.time() - self._swept > SWEEP_SECONDS
        return self._image.outgrown(entries) or (late and entries > self._image.live)

    # Failures

    async def _do(self, job: Callable[[], Result]) -> Result:
        """In the thread. While it takes too long, that is trouble, but the end is waited for."""
        done = self._worker.do(job)
        await asyncio.wait([done], timeout=STALL_SECONDS)
        if not done.done():
            self._say_stall()
            await asyncio.wait([done])
            if done.exception() is None and self._error is None and self.known:
                self._say_well()
        return done.result()

    def _say_stall(self) -> None:
        self._say_trouble(f"{self._file.path}: the disk takes over {STALL_SECONDS:g} s")
        self._tell_all(StoreError(self.trouble))

    def _fail(self, error: BaseException) -> None:
        """From now on the task tries, and all others are refused."""
        if not isinstance(error, StoreError):  # ours, and a bug: said with its place, and survived
            log.fault("store_fault", error)
            error = StoreError(f"{self._file.path} can't be written: {type(error).__name__}")
        self._error = error
        self._stalled = False
        self._say_trouble(str(error))
        self._tell_all(error)
        self._wanted.set()

    def _say_trouble(self, sentence: str) -> None:
        if sentence != self.trouble:
            log.get().error("store_fails", reason=sentence)
            self._complained = True
        self.trouble = sentence

    def _say_well(self) -> None:
        self.trouble = None
        if self._complained:
            log.get().info("store_works", path=str(self._file.path))
            self._complained = False

    def _tell_all(self, error: StoreError | None) -> None:
        waiting, self._waiting = self._waiting, []
        _tell(waiting, error)


def _nothing() -> None:
    return None


def _tell(waiting: list[asyncio.Future[None]], error: StoreError | None) -> None:
    for waiter in waiting:
        if waiter.done():  # its request was cancelled
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(StoreError(str(error)))
