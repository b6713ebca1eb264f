"""A limit on a wait that doesn't blame the other side for what kept this process busy."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final

LOOKS: Final = 10


class Patience:
    """As ``asyncio.timeout``: raises ``TimeoutError`` after ``seconds``.

    It counts ten tenths of them, one after the other, and the event loop looks for what has come
    in between. So a loop that stood still for longer than ``seconds``, with the answer waiting in
    its socket, has lost one tenth only.
    """

    def __init__(self, seconds: float) -> None:
        self._step = seconds / LOOKS
        self._left = LOOKS
        self._limit = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._timer = self._loop.call_later(self._step, self._look)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _look(self) -> None:
        self._left -= 1
        if self._left:
            self._timer = self._loop.call_later(self._step, self._look)
        else:
            self._limit.reschedule(self._loop.time())
