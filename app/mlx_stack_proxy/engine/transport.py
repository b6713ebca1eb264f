"""httpx's transport to LiteLLM by an aiohttp session of ours.

A server closes a connection that was idle for too long, and may do so at the moment at which the
next request is sent on it. Four things keep that from the client:

- We keep an idle connection for a shorter time than usual servers do (``IDLE_SECONDS``).
- A connection that the server has closed, or written to, while it was idle is not taken again.
- A request that could not be written to the end on a connection that was used before is sent once
  more, on a new connection, if its body is still there: no server can have acted on it.
- What was written to the end may have been acted on, and is not sent again. (For methods that are
  idempotent aiohttp does so once, as RFC 9110, 9.2.2 lets it.)
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

import aiohttp
import httpx
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from multidict import CIMultiDict
from yarl import URL

CALL_ID = "x-litellm-call-id"  # LiteLLM takes it over, up to 256 characters, and gives it back
_CALL_ID = CALL_ID.encode()
# What aiohttp says where nobody else does; then it is not to be said at all.
_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 3.0  # uvicorn, under which LiteLLM runs, closes an idle connection after 5 s
READ_BUFFER = 64 * 1024
URL_AS_OURS = "mlx_stack_url"  # an extension of a request: its URL as our transport wants it
# An agent sends the same headers to the same place each time, and making either costs as much as a
# tenth of a request.
KNOWN = 256


@dataclass(slots=True)
class _Sending:
    """One try to send a request.

    ``fresh``: on a new connection. ``reused``: the connection has had requests before. ``written``:
    all of the request has been given to the system. ``heard``: something of a reply has come.
    """

    fresh: bool = False
    reused: bool = False
    written: bool = False
    heard: bool = False

    @property
    def unsent(self) -> bool:
        """Whether a request that failed can't have been acted on, and may do better elsewhere."""
        return self.reused and not self.written and not self.heard


_SENDING: ContextVar[_Sending] = ContextVar("sending")


class Pieces(Protocol):
    """A request's body that comes piece by piece."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    def rewind(self) -> bool:
        """Whether all that came so far is still there; then the next iteration begins with it."""


class Content(httpx.AsyncByteStream):
    """A request's body: all of it, or what brings it piece by piece."""

    def __init__(self, data: bytes | Pieces) -> None:
        self.data = data

    def rewind(self) -> bool:
        """Whether it can be sent once more, from its beginning."""
        return isinstance(self.data, bytes) or self.data.rewind()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self.data, bytes):
            yield self.data
            return
        async for piece in self.data:
            yield piece


class Arriving(httpx.AsyncByteStream):
    """A response's body as it comes in: each read gives all that is there."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.read = response.content.readany  # gives nothing at the end

    @property
    def ended(self) -> bool:
        """Whether all of it has come and been read."""
        return self._response.content.at_eof()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if data := await self.read():
            return data
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await self._response.__aexit__(None, None, None)


class _Connection(ResponseHandler):
    """aiohttp's, which asks its parser for more only within a response that it has paused in.

    From 3.14 on it does so after each piece that is read, which is a tenth of what a chunk of a
    stream costs. Only what was paused keeps back what came: but that may be after reading went
    on, for the parser remembers a pause until its next piece of a body.
    """

    _has_paused = False
    _sending: _Sending | None = None

    def set_response_params(self, **params: Any) -> None:
        self._sending = _SENDING.get(None)
        self._has_paused = False  # a parser of its own
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if self._sending is not None:
            self._sending.heard = True
            self._sending = None
        super().data_received(data)

    def pause_reading(self) -> None:
        self._has_paused = True
        super().pause_reading()

    def resume_reading(self, *how: bool, **named: bool) -> None:
        if self._has_paused:
            super().resume_reading(*how, **named)


class _Request(ClientRequest):
    """aiohttp's, which says when all of it has been written."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        response = await super().send(conn)
        if not self._body:
            _note_written(conn)
        return response

    async def write_bytes(self, writer: Any, conn: Connection, *more: Any) -> None:
        await super().write_bytes(writer, conn, *more)
        _note_written(conn)


def _note_written(conn: Connection) -> None:
    protocol = conn.protocol
    if protocol is None or protocol.exception() is None:
        _SENDING.get(_Sending()).written = True


class _Connector(aiohttp.TCPConnector):
    """aiohttp's, with connections of ours, of which those that are stale are not used again."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._factory = partial(  # type: ignore[assignment]
            _Connection, loop=asyncio.get_running_loop()
        )

    async def _get(self, key: Any, traces: Any) -> Connection | None:
        sending = _SENDING.get(_Sending())
        sending.reused = sending.written = sending.heard = False
        while not sending.fresh and (found := await super()._get(key, traces)) is not None:
            if not _has_news(found):
                sending.reused = True
                return found
            found.close()
        return None


def _has_news(connection: Connection) -> bool:
    """Whether the server has closed an idle connection, or written to it, unseen so far."""
    transport = connection.transport
    socket = transport.get_extra_info("socket") if transport is not None else None
    if socket is None:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class Transport(httpx.AsyncBaseTransport):
    """Sends httpx's requests by an aiohttp session; errors come as aiohttp raises them.

    ``limit``: connections at once. ``context``: for TLS; False: without.
    """

    def __init__(self, limit: int, context: ssl.SSLContext | bool) -> None:
        connector = _Connector(limit=limit, ssl=context, keepalive_timeout=IDLE_SECONDS)
        self._session = aiohttp.ClientSession(
            connector=connector,
            request_class=_Request,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        )
        self._named = lru_cache(KNOWN)(_named)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sending = _Sending()
        try:
            return await self._send(request, sending)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            stream = request.stream
            if not sending.unsent or (isinstance(stream, Content) and not stream.rewind()):
                raise
        return await self._send(request, _Sending(fresh=True))

    async def _send(self, request: httpx.Request, sending: _Sending) -> httpx.Response:
        _SENDING.set(sending)
        stream = request.stream
        headers, unsaid = self._sent(request.headers.raw)
        response = await self._session.request(
            request.method,
            request.extensions.get(URL_AS_OURS) or as_ours(request.url),
            headers=headers,
            skip_auto_headers=unsaid or None,
            data=stream.data if isinstance(stream, Content) else None,
            allow_redirects=False,
        )
        return httpx.Response(
            response.status, headers=response.raw_headers, stream=Arriving(response)
        )

    def _sent(self, raw: list[tuple[bytes, bytes]]) -> tuple[CIMultiDict[str], frozenset[str]]:
        """The headers as aiohttp takes them; and which of its own it is not to add."""
        if raw and raw[-1][0] == _CALL_ID:  # the one that differs each time
            headers, unsaid = self._named(tuple(raw[:-1]))
            headers = headers.copy()
            headers[CALL_ID] = raw[-1][1].decode("latin-1")
            return headers, unsaid
        return self._named(tuple(raw))

    async def aclose(self) -> None:
        await self._session.close()


def as_ours(url: httpx.URL) -> URL:
    return URL(str(url), encoded=True)


def _named(raw: tuple[tuple[bytes, bytes], ...]) -> tuple[CIMultiDict[str], frozenset[str]]:
    headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in raw)
    return headers, frozenset(name for name in _AUTOMATIC if name not in headers)
