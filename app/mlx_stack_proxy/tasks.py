"""Background asyncio tasks, and ending tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

MAX_TASKS: Final = 8  # at the same time; callers check `Background.is_full`
LARGE_BODY: Final = 1024 * 1024  # bytes; parsing and checking more would block the event loop
P = ParamSpec("P")
T = TypeVar("T")


async def aside(body: bytes, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that reads ``body``: in a thread if the body is large."""
    if len(body) > LARGE_BODY:
        return await asyncio.to_thread(function, *args, **kwargs)
    return function(*args, **kwargs)


async def end(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel the tasks and wait until all have ended; their results and errors are dropped."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


class Background:
    """Holds running tasks that no exchange waits for. Each task reports its own errors."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_full(self) -> bool:
        return len(self._tasks) >= MAX_TASKS

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        await end(*self._tasks)
