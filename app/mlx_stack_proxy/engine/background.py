"""Background tasks: no exchange waits for them, and they end with the process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from .. import tasks

MAX_TASKS: Final = 8  # at the same time; callers check `is_full`


class Background:
    """Holds the running background tasks. Each task reports its own errors."""

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
        await tasks.end(*self._tasks)
