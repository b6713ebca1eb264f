"""Tracks whether LiteLLM accepts connections.

Calls find that out, so that no extra requests are made while all is well. After a call that could
not connect, a task polls LiteLLM each second until it answers.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable
from typing import Final

from .. import tasks

INTERVAL_SECONDS: Final = 1.0


class Reachability:
    """Whether LiteLLM is reachable. ``ask`` returns whether LiteLLM answers now.

    Inactive until :meth:`watch` has set the callbacks.
    """

    def __init__(self, ask: Callable[[], Awaitable[bool]]) -> None:
        self._is_alive = ask
        self._on_down: Callable[[str], None] | None = None
        self._on_up: Callable[[float], None] | None = None
        self.why = ""  # why no connection can be made; "": it is reachable
        self._lost_at = 0.0  # when the connection was lost, monotonic seconds
        self._task: asyncio.Task[None] | None = None

    def watch(self, on_down: Callable[[str], None], on_up: Callable[[float], None]) -> None:
        """Set the callbacks: ``on_down`` gets the reason, ``on_up`` the outage's seconds."""
        self._on_down, self._on_up = on_down, on_up

    def lost(self, why: str) -> None:
        """Record that a call could not connect, and poll until LiteLLM is back."""
        if self.why or self._on_down is None:
            return
        self.why, self._lost_at = why, time.monotonic()
        self._on_down(why)
        if self._task is None or self._task.done():  # else it is still polling
            # The task belongs to no request; in an empty context its log lines name none.
            self._task = contextvars.Context().run(asyncio.ensure_future, self._wait_for_return())

    def answered(self) -> None:
        """Record that LiteLLM has answered."""
        if self.why and self._on_up is not None:
            self.why = ""
            self._on_up(time.monotonic() - self._lost_at)

    async def close(self) -> None:
        await tasks.end(self._task)

    async def _wait_for_return(self) -> None:
        while self.why:
            await asyncio.sleep(INTERVAL_SECONDS)
            if await self._is_alive():
                self.answered()
