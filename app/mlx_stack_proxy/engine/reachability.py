"""Whether LiteLLM takes connections, as the calls find out.

While nobody calls, nobody asks. Once a connection was refused it is asked each second until it
answers, so that its return is known, and when it was.
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
    """``ask``: whether it answers now. ``why``: why no connection can be made; "" while one can.

    Does nothing until somebody cares: see :meth:`watch`.
    """

    def __init__(self, ask: Callable[[], Awaitable[bool]]) -> None:
        self._ask = ask
        self._on_down: Callable[[str], None] | None = None
        self._on_up: Callable[[float], None] | None = None
        self.why = ""
        self._since = 0.0
        self._task: asyncio.Task[None] | None = None

    def watch(self, on_down: Callable[[str], None], on_up: Callable[[float], None]) -> None:
        """Tell ``on_down`` why it is gone, ``on_up`` after how many seconds it is back."""
        self._on_down, self._on_up = on_down, on_up

    def lost(self, why: str) -> None:
        """No connection could be made."""
        if self.why or self._on_down is None:
            return
        self.why, self._since = why, time.monotonic()
        self._on_down(why)
        # It is no request's: its log lines are to name none.
        self._task = contextvars.Context().run(asyncio.ensure_future, self._wait())

    def answered(self) -> None:
        if self.why and self._on_up is not None:
            self.why = ""
            self._on_up(time.monotonic() - self._since)

    async def close(self) -> None:
        await tasks.end(self._task)

    async def _wait(self) -> None:
        while self.why:
            await asyncio.sleep(INTERVAL_SECONDS)
            if await self._ask():
                self.answered()
