"""What can end a wait early: the client leaves, or a time is reached.

One listener task and one timer an exchange, which looks several times a second; nothing a chunk,
and nothing but the timer for an exchange that is over at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from .verdicts import Verdict

# A client that leaves is to be noticed within a second; to look at once would cost every request.
BEGIN_SECONDS = 0.1
TICK_SECONDS = 0.2

Receive = Callable[[], Awaitable[Any]]


class ClientLeft(Exception):
    """The client closed its connection."""


class Watch:
    """Watches over the current task.

    ``tick(now)`` does what is due, and may give a verdict, which then interrupts the task: catch
    :class:`asyncio.CancelledError` and ask :meth:`interruption`.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._listener: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick: Callable[[float], Verdict | None] | None = None
        self._verdict: Verdict | None = None
        self._stopped = False
        self.client_left = False

    def start(self, tick: Callable[[float], Verdict | None]) -> None:
        if not self._stopped:
            self._tick = tick
            self._timer = self._loop.call_later(BEGIN_SECONDS, self._begin)

    def stop(self) -> None:
        """Before the last bytes go out: a server reports a finished response as a disconnect."""
        # Each of these holds all of the exchange, which holds this: no cycle is to be left.
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._tick = None
        self._stopped = True

    def end(self, verdict: Verdict) -> None:
        """Interrupt the task with a verdict from outside, if it still is on its way."""
        if self._tick is not None and self._verdict is None and not self.client_left:
            self._verdict = verdict
            self._interrupt()

    def interruption(self) -> Verdict:
        """What a CancelledError means. Raises :class:`ClientLeft`, or CancelledError again."""
        if self._task is not None and (self.client_left or self._verdict is not None):
            self._task.uncancel()
        if self.client_left:
            raise ClientLeft
        verdict, self._verdict = self._verdict, None
        if verdict is None:
            raise asyncio.CancelledError
        return verdict

    async def settle(self) -> None:
        """Let an interruption that has been asked for arrive here, where it can be caught."""
        if self._verdict is not None or self.client_left:
            await asyncio.sleep(0)

    def _begin(self) -> None:
        self._listener = self._loop.create_task(self._listen())
        self._look()

    async def _listen(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.client_left = True
                self._interrupt()
                return

    def _look(self) -> None:
        if self._tick is None:
            return
        self._timer = self._loop.call_later(TICK_SECONDS, self._look)
        verdict = self._tick(self._loop.time())
        if verdict is not None and self._verdict is None:
            self._verdict = verdict
            self._interrupt()

    def _interrupt(self) -> None:
        if self._task is not None:
            self._task.cancel()
