"""One thread that does blocking work, one thing after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")
Done = Callable[[Any, BaseException | None], None]


class Worker:
    """Belongs to the event loop that runs when it is made. A thread that hangs holds up no exit."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def do(self, job: Callable[[], Result]) -> asyncio.Future[Result]:
        """Run ``job`` in the thread; what it returns or raises is the future's."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self.post(job, partial(_give, future))
        return future

    def post(self, job: Callable[[], Any], done: Done) -> None:
        """Run ``job`` in the thread, then ``done`` in the loop with what it returned or raised."""
        self._jobs.put((job, done))

    def stop(self) -> None:
        """End the thread, once all that was given to it is done."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (given := self._jobs.get()) is not None:
            job, done = given
            try:
                result, error = job(), None
            except BaseException as caught:  # it is the caller's
                result, error = None, caught
            try:
                self._loop.call_soon_threadsafe(done, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass
            del given, job, done, result, error


def _give(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
