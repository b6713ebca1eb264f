"""Daemon threads, which never delay the exit: a pool, and one that serves a loop in order."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_NAME: Final = "mlx-stack-aside"
OnDone = Callable[[Any, BaseException | None], None]


class DaemonThreads(ThreadPoolExecutor):
    """Runs jobs in at most ``most`` daemon threads, which start when they are needed.

    The standard pool's threads are waited for when the event loop ends, and again when the process
    does, so that one job that hangs would hold up the exit for good. This pool shares that class's
    name alone: event loops accept no other as their default executor.
    """

    def __init__(self, most: int, name: str = _NAME) -> None:
        super().__init__(most)
        self._most, self._name = most, name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # they raise nothing
        self._free = threading.Semaphore(0)  # threads that wait for a job
        self._started = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._add(partial(_fulfil, future, partial(fn, *args, **kwargs)))
        return future

    def _add(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        if not self._free.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let idle threads end; wait for none."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # free its memory before waiting for the next job
            if self._most > 1:
                self._free.release()


def _fulfil(future: Future[T], job: Callable[[], T]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = job()
        except BaseException as error:  # re-raised by the future
            future.set_exception(error)
        else:
            future.set_result(result)


class Worker(DaemonThreads):
    """One thread that runs jobs in their order, for the event loop that is running now."""

    def __init__(self, name: str) -> None:
        super().__init__(1, name)
        self._loop = asyncio.get_running_loop()
        self._started = 1
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _add(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)  # nothing else: each exchange's end waits for this

    def do(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run ``job`` in the thread, even if the future is cancelled."""
        future: asyncio.Future[T] = self._loop.create_future()

        def end(result: Any, error: BaseException | None) -> None:
            if future.done():  # the caller has cancelled it
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.call(job, end)
        return future

    def call(self, job: Callable[[], Any], then: OnDone) -> None:
        """Run ``job`` in the thread, then ``then`` with its result and its error on the loop."""
        self._add(partial(self._report, job, then))

    def _report(self, job: Callable[[], Any], then: OnDone) -> None:
        result, error = None, None
        try:
            result = job()
        except BaseException as raised:  # the caller gets it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits
            self._loop.call_soon_threadsafe(then, result, error)
