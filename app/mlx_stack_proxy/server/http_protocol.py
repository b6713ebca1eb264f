"""uvicorn's HTTP/1.1 protocol, with bounds on a request, without pipelining and upgrades.

``incoming.py`` checks a request's headers once they are complete. How long a head may become, and
how long a head and a body may take, only the protocol can bound for every path. A request that is
late is answered here (408), and its connection is closed: whoever waits for its body sees that the
client is gone.

Pipelining: a request that comes before the reply to the last one is complete is not served. The
connection closes after that reply, as RFC 9112 (9.3.2) allows and clients must expect. A request
kept waiting would hide that the client has left. Early bytes that are no HTTP are treated alike.

Upgrades: an offer to speak another protocol (Java's client offers HTTP/2 with each first request)
is ignored, as RFC 9110 (7.8) allows. The parser would stop at the offer and take the request's body
for the other protocol, so it never sees that line. Only WebSockets are refused, by ``edge.py``.
"""

from __future__ import annotations

import asyncio
import logging
import re

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ..engine.downstream import BEGIN, content_length
from ..engine.headers import RawHeaders
from ..errors import ProxyError, invalid
from .app import ProxyApp
from .edge import Scope
from .incoming import LATE_BODY, MAX_HEADER_BYTES, MAX_HEADERS, SILENT_SECONDS, WHOLE_SECONDS

# The request line, names, values and separators. The parser gets no more of a longer head.
MAX_HEAD_BYTES = 2 * MAX_HEADER_BYTES + 4 * MAX_HEADERS

_CLOSE = (b"connection", b"close")
_OFFER = b"\r\nupgrade:"
_OFFERS = re.compile(rb"\r\nupgrade:(?![^\r\n]*websocket)[^\r\n]*(?=\r\n)", re.IGNORECASE)

# We leave a response unended to show the client that it isn't whole, and log why where we do: drop
# uvicorn's message about it.
_NOT_ENDED = "ASGI callable returned without completing response."
logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg != _NOT_ENDED)


class _TooEarly(Exception):
    """A request arrived before the reply to the last one was complete."""


class BoundedProtocol(HttpToolsProtocol):
    """One client connection. Its own errors have the same JSON body as the proxy's others."""

    # Without slots, these and uvicorn's attributes would be more than 30, and then Python gives
    # each object a dictionary of its own, of 1.5 kB.
    __slots__ = (
        "_begun_at",
        "_due",
        "_head_bytes",
        "_in_head",
        "_last_byte_at",
        "_line",
        "_pipelined",
        "_unfinished",
    )
    _due: asyncio.TimerHandle | None  # checks whether the request is late

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._in_head = True  # the next bytes belong to a head, not to a body
        self._unfinished = False  # a request has begun to arrive, but is incomplete
        self._head_bytes = 0
        self._pipelined = False  # a request arrived too early: ignore all bytes from then on
        self._line = b""  # the beginning of a head's line that may become an offer
        self._await_the_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_longer_awaited()
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.scope.pop("extensions", None)  # it refers to this: leave no cycle

    def data_received(self, data: bytes) -> None:
        if self._pipelined:
            return
        if self._in_head:
            if self._head_bytes > MAX_HEAD_BYTES:
                self._answer(invalid(f"headers of more than {MAX_HEADER_BYTES} bytes", status=431))
                return
            self._head_bytes += len(data)
            data = self._without_offers(data)
        super().data_received(data)
        if self._unfinished:
            if self._due is None:
                self._await_the_rest()
            else:
                self._last_byte_at = self.loop.time()

    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            raise _TooEarly  # the parser stops here, and `send_400_response()` follows
        self._in_head = self._unfinished = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        super().on_headers_complete()  # its task has not begun yet
        self.scope["extensions"] = {BEGIN: {"begin": self._begin}}

    def on_message_complete(self) -> None:
        self._in_head = True
        self._unfinished = False
        self._no_longer_awaited()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        cycle = self.cycle
        running = cycle is not None and not cycle.response_complete
        if running and not cycle.more_body:  # the bytes follow a complete request
            self._pipelined, cycle.keep_alive = True, False
        elif running and cycle.response_started:
            self.transport.close()
        else:
            self._answer(invalid(msg))

    def _without_offers(self, data: bytes) -> bytes:
        """Return a head's bytes without lines that offer a protocol; keep the start of one back."""
        head, end, rest = (self._line + data).partition(b"\r\n\r\n")
        head, self._line = _OFFERS.sub(b"", head + end), b""
        if not end:
            start = head.rfind(b"\r\n")
            last = head[start:].lower() if start >= 0 else b"-"
            if not (_OFFER.startswith(last) or last.startswith((_OFFER, b"\r\n\r"))):
                start = len(head) - head.endswith(b"\r")
            head, self._line = head[:start], head[start:]
        return head + rest

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing about a WebSocket: ``edge.py`` refuses it."""

    def _await_the_rest(self) -> None:
        self._begun_at = self._last_byte_at = self.loop.time()
        self._look_later()

    def _look_later(self) -> None:
        due = min(self._last_byte_at + SILENT_SECONDS, self._begun_at + WHOLE_SECONDS)
        self._due = self.loop.call_at(due, self._look)

    def _look(self) -> None:
        """Give up a late request: answer 408 if it has no answer yet, and close."""
        now = self.loop.time()
        if now < min(self._last_byte_at + SILENT_SECONDS, self._begun_at + WHOLE_SECONDS):
            self._look_later()
        elif not self.transport.is_closing():
            if self._in_head:
                self._answer(invalid("the request was not complete in time", status=408))
            elif self.cycle.response_started:  # an answer that didn't wait for the body
                self.transport.close()
            else:
                self._answer(invalid(LATE_BODY, status=408), dict(self.cycle.scope))

    def _no_longer_awaited(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _answer(self, error: ProxyError, scope: Scope | None = None) -> None:
        """Answer the client and close. ``scope``: the request, if its head has been read."""
        assert isinstance(self.app, ProxyApp)
        reply = self.app.edge.refuse(error, scope)
        headers = [*reply.headers, content_length(reply.body), _CLOSE]
        self.transport.write(_head(reply.status, headers) + reply.body)
        self.transport.close()

    async def _begin(self, status: int, headers: RawHeaders, data: bytes, more: bool) -> None:
        """Write a response's head and the first bytes of its body at once; uvicorn's ``send`` does
        that in two writes, and sends what follows. ``more``: more will follow."""
        cycle = self.cycle
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if cycle.disconnected:
            return
        if b"content-length" not in dict(headers):
            cycle.chunked_encoding = True
            headers = [*headers, (b"transfer-encoding", b"chunked")]
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            data += b"" if more else b"0\r\n\r\n"
        if _CLOSE in headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            headers = [*headers, _CLOSE]
        data = b"" if cycle.scope["method"] == "HEAD" else data
        self.transport.write(_head(status, cycle.default_headers + headers) + data)
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        if more:
            return
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()


def _head(status: int, headers: RawHeaders) -> bytes:
    lines = [STATUS_LINE[status], *[b"%s: %s\r\n" % header for header in headers], b"\r\n"]
    return b"".join(lines)
