"""One thread that runs blocking jobs for an event loop, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")
Then = Callable[[Any, BaseException | None], None]


class Worker:
    """A thread that serves one event loop: the loop that is running when the worker is made.

    The thread is a daemon: if a job hangs, the process ends all the same.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Then] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def do(self, job: Callable[[], Result]) -> asyncio.Future[Result]:
        """Run ``job`` in the thread; the future gets its result or its exception."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self.call(job, partial(_end, future))
        return future

    def call(self, job: Callable[[], Any], then: Then) -> None:
        """Run ``job`` in the thread, then ``then`` with its result and its error on the loop."""
        self._jobs.put((job, then))

    def stop(self) -> None:
        """End the thread once it has run all jobs that it was given."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (queued := self._jobs.get()) is not None:
            job, then = queued
            result, error = None, None
            try:
                result = job()
            except BaseException as raised:  # the caller gets it
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(then, result, error)
            del queued, job, then, result, error


def _end(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # the caller has cancelled it
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
