"""Interrupts an exchange that waits: because the client leaves, or a time limit is reached.

Each exchange has one task that listens for the client's disconnect, and one timer that ticks
several times a second. Either can cancel the exchange's task; the code that waited catches the
cancellation and asks :meth:`Watch.interruption` what it means. No chunk costs anything here, and an
exchange that is over at once costs only the first timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from .verdicts import Verdict

# Seconds. A client that leaves must be noticed within a second; a listener from the first moment on
# would cost every request.
BEGIN_SECONDS = 0.1
TICK_SECONDS = 0.2

Receive = Callable[[], Awaitable[Any]]


class ClientLeft(Exception):
    """The client closed its connection."""


class Watch:
    """Watches over the task that makes it.

    An interruption reaches that task as :class:`asyncio.CancelledError`; catch it and ask
    :meth:`interruption`.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive  # ASGI's: the next message from the client
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()  # the exchange's, which is interrupted
        self._listener: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick: Callable[[float], Verdict | None] | None = None
        self._verdict: Verdict | None = None  # why the task is being interrupted
        self._stopped = False
        self.client_left = False

    def start(self, tick: Callable[[float], Verdict | None]) -> None:
        """Begin to watch. ``tick(now)`` does what is due; its verdict interrupts the task."""
        if not self._stopped:
            self._tick = tick
            self._timer = self._loop.call_later(BEGIN_SECONDS, self._begin)

    def stop(self) -> None:
        """Stop before the last bytes go out: ASGI reports a finished response as a disconnect."""
        # Listener, timer and tick refer to the exchange, which refers to this: leave no cycle.
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._tick = None
        self._stopped = True

    def end(self, verdict: Verdict) -> None:
        """Interrupt the task with a verdict from outside, if it is still being watched."""
        if self._tick is not None and self._verdict is None and not self.client_left:
            self._verdict = verdict
            self._interrupt()

    def interruption(self) -> Verdict:
        """Return the verdict behind a cancellation that was caught.

        Raises :class:`ClientLeft` if the client left, and ``CancelledError`` again if the
        cancellation came from elsewhere.
        """
        if self._task is not None and (self.client_left or self._verdict is not None):
            self._task.uncancel()
        if self.client_left:
            raise ClientLeft
        verdict, self._verdict = self._verdict, None
        if verdict is None:
            raise asyncio.CancelledError
        return verdict

    async def settle(self) -> None:
        """Let an interruption that has been requested arrive here, where it can be caught."""
        if self._verdict is not None or self.client_left:
            await asyncio.sleep(0)

    def _begin(self) -> None:
        self._listener = self._loop.create_task(self._listen())
        self._on_timer()

    async def _listen(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.client_left = True
                self._interrupt()
                return

    def _on_timer(self) -> None:
        if self._tick is None:
            return
        self._timer = self._loop.call_later(TICK_SECONDS, self._on_timer)
        verdict = self._tick(self._loop.time())
        if verdict is not None and self._verdict is None:
            self._verdict = verdict
            self._interrupt()

    def _interrupt(self) -> None:
        if self._task is not None:
            self._task.cancel()
