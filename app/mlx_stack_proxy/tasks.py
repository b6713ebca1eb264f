"""Asyncio tasks in the background, and how tasks are ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

MAX_TASKS: Final = 8  # at the same time; callers check `Background.is_full`


async def end(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel the tasks and wait until all have ended; their results and errors are dropped."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


class Background:
    """Holds running tasks for which no exchange waits. Each task reports its own errors."""

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
