"""Interrupts a waiting exchange when its client leaves or a time limit is reached.

Each exchange has one timer, set to the next time at which something may be due, and after a tenth
of a second a task that listens for the client's disconnect. Either can cancel the exchange's task;
the waiting code catches the cancellation and calls :meth:`Watch.interruption` for its cause. Chunks
cost nothing here, and a short exchange costs only the first timer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from .verdicts import Verdict

# Seconds. A client that leaves must be noticed within a second; an immediate listener would cost
# every request.
BEGIN_SECONDS = 0.1
LEAST_SECONDS = 0.2  # between two checks

Receive = Callable[[], Awaitable[Any]]


class ClientLeft(Exception):
    """The client closed its connection."""


class Watch:
    """Watches the task that makes it. A subclass implements :meth:`look`.

    An interruption raises :class:`asyncio.CancelledError` in that task; catch it and call
    :meth:`interruption`.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive  # ASGI's
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()  # the exchange's task
        self._listener: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = math.inf  # when the timer fires
        self._verdict: Verdict | None = None  # why the task is being cancelled
        self._watches = self._stopped = False
        self.client_left = False

    def look(self, now: float) -> Verdict | float:
        """Do what is due; return a verdict to interrupt with, or when to look again."""
        return math.inf

    def start(self) -> None:
        """Start watching, unless :meth:`stop` was called before."""
        self._watches = not self._stopped
        if self._watches:
            self._set_timer(self._loop.time() + BEGIN_SECONDS)

    def stop(self) -> None:
        """Stop before the last bytes go out: ASGI reports a finished response as a disconnect."""
        # Break the reference cycle with the listener and the timer.
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._watches, self._stopped = False, True

    def look_soon(self) -> None:
        """Look within :data:`LEAST_SECONDS`, because something may be due earlier than before."""
        soon = self._loop.time() + LEAST_SECONDS
        if self._watches and soon < self._looks_at:
            self._set_timer(soon)

    def end(self, verdict: Verdict) -> None:
        """Interrupt the task with a verdict, if it is watched and not interrupted already."""
        if self._watches and self._verdict is None and not self.client_left:
            self._verdict = verdict
            self._interrupt()

    def interruption(self) -> Verdict:
        """Return the verdict behind a cancellation that was caught.

        Raises :class:`ClientLeft` if the client left, and ``CancelledError`` again if the
        cancellation has another cause.
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
        """Wait until a requested interruption arrives here, where it can be caught."""
        if self._verdict is not None or self.client_left:
            await asyncio.sleep(0)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = when
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        if self._listener is None:
            self._listener = self._loop.create_task(self._listen())
        self._timer, self._looks_at = None, math.inf
        now = self._loop.time()
        due = now  # if the look raises, the next one follows soon
        try:
            found = self.look(now)
            if isinstance(found, (float, int)):
                due = found
            else:
                self.end(found)
        finally:
            due = max(due, now + LEAST_SECONDS)
            if self._watches and due < self._looks_at:
                self._set_timer(due)

    async def _listen(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.client_left = True
                self._interrupt()
                return

    def _interrupt(self) -> None:
        if self._task is not None:
            self._task.cancel()
