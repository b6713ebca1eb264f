"""The ASGI response to a client. It starts as late as possible, because that commits the status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .headers import RawHeaders

Send = Callable[[Any], Awaitable[None]]
# Status, headers, the first bytes of the body, and whether more follow.
Begin = Callable[[int, RawHeaders, bytes, bool], Awaitable[None]]
# Our server's ASGI extension, which writes a response's head together with its first bytes.
BEGIN = "mlx_stack.begin"

EVENT_STREAM: RawHeaders = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def content_length(body: bytes) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % len(body)


class Downstream:
    """Writes one response.

    If a started response is never ended, the server closes its connection, so that the client
    sees that it is incomplete.
    """

    __slots__ = ("_begin", "_clock", "last_write", "send", "started", "writing")

    def __init__(self, send: Send, clock: Callable[[], float], begin: Begin | None = None) -> None:
        self.send = send
        self._begin = begin  # None: the server lacks the extension
        self._clock = clock
        self.started = False  # status and headers have gone out
        self.writing = False  # a write is waiting for the client
        self.last_write = clock()  # when the last write ended, on the event loop's clock

    async def start(self, status: int, headers: RawHeaders) -> None:
        """Send status and headers alone, when the body may take long."""
        self.writing = True
        try:
            await self.send({"type": "http.response.start", "status": status, "headers": headers})
            self.started = True
        finally:
            self.writing = False

    async def begin(
        self, status: int, headers: RawHeaders, data: bytes, *, more: bool = True
    ) -> None:
        """Send status and headers with the first bytes of the body. ``more``: more will follow.

        If the wait is cancelled, nothing of ``data`` has gone out.
        """
        if self._begin is None:
            await self.start(status, headers)
            await (self.write(data) if more else self.end(data))
            return
        self.writing = True
        try:
            await self._begin(status, headers, data, more)
            self.started = True
        finally:
            self.writing = False
            self.last_write = self._clock()

    async def write(self, data: bytes) -> None:
        """Send a part of the body; wait if the client reads more slowly than we write.

        If the wait is cancelled, nothing of ``data`` has gone out.
        """
        self.writing = True
        try:
            await self.send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self.writing = False
            self.last_write = self._clock()

    async def end(self, data: bytes = b"") -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": False})

    async def whole(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Send a whole response."""
        await self.begin(status, [*headers, content_length(body)], body, more=False)
