"""What can end a wait early: the client leaves, or a time is reached.

One listener task and one timer an exchange, nothing a chunk, and nothing but the timer for an
exchange that is over at once. The timer is not moved when bytes come; when it fires too early, it
is set anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from .verdicts import Verdict

# A client that leaves is to be noticed within a second; to look at once would cost every request.
BEGIN_SECONDS = 0.1

Receive = Callable[[], Awaitable[Any]]


class ClientLeft(Exception):
    """The client closed its connection."""


class Watch:
    """Watches over the current task.

    ``due()`` gives the next time that matters, None for none; ``tick(now)`` acts on it and may give
    a verdict, which then interrupts the task: catch :class:`asyncio.CancelledError` and ask
    :meth:`interruption`.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._listener: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due: Callable[[], float | None] | None = None
        self._tick: Callable[[float], Verdict | None] | None = None
        self._verdict: Verdict | None = None
        self._stopped = False
        self.client_left = False

    def start(
        self, due: Callable[[], float | None], tick: Callable[[float], Verdict | None]
    ) -> None:
        if self._stopped:
            return
        self._due = due
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
        self._due = self._tick = None
        self._stopped = True

    def end(self, verdict: Verdict) -> None:
        """Interrupt the task with a verdict from outside, if it still is on its way."""
        if self._due is not None and self._verdict is None and not self.client_left:
            self._verdict = verdict
            self._interrupt()

    def rearm(self) -> None:
        """A time before the one waited for may matter now."""
        if self._listener is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._arm()

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
        self._arm()

    async def _listen(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.client_left = True
                self._interrupt()
                return

    def _arm(self) -> None:
        when = self._due() if self._due is not None else None
        self._timer = None if when is None else self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        if self._due is None or self._tick is None:
            return
        when = self._due()
        now = self._loop.time()
        if when is not None and when <= now:
            verdict = self._tick(now)
            if verdict is not None and self._verdict is None:
                self._verdict = verdict
                self._interrupt()
                return
        self._arm()

    def _interrupt(self) -> None:
        if self._task is not None:
            self._task.cancel()
