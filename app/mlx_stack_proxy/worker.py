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


class Worker:
    """A thread that serves one event loop: the loop that is running when the worker is made.

    The thread is a daemon: if a job hangs, the process ends all the same.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = (
            SimpleQueue()
        )
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def do(self, job: Callable[[], Result]) -> asyncio.Future[Result]:
        """Run ``job`` in the thread; the future gets its result or its exception."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put((job, future))
        return future

    def stop(self) -> None:
        """End the thread once it has run all jobs that it was given."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (queued := self._jobs.get()) is not None:
            job, future = queued
            try:
                deliver = partial(future.set_result, job())
            except BaseException as error:  # the caller, who waits for the future, gets it
                deliver = partial(future.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(_unless_done, future, deliver)
            del queued, job, future, deliver


def _unless_done(future: asyncio.Future[Any], deliver: Callable[[], None]) -> None:
    if not future.done():  # else the caller has cancelled it
        deliver()
