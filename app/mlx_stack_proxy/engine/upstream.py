"""LiteLLM over HTTP: the only module, with ``transport.py``, that imports httpx.

Requests go straight to an httpx transport: a client's redirects, cookies and environment proxies
have no place here, and cost more than the request itself. The transport is aiohttp's, by a few
lines of ours: what a general one translates that no request of ours has costs a tenth of a whole
exchange (benchmarks/performance.md). Library errors become :class:`UpstreamError` at this edge.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import aiohttp
import httpx
from yarl import URL

from ..settings import UpstreamSettings
from .headers import RawHeaders
from .transport import CALL_ID, KNOWN, URL_AS_OURS, Arriving, Content, Pieces, Transport, as_ours

CHAT_PATH = "/v1/chat/completions"
_LIVENESS_PATH = "/health/liveliness"  # as LiteLLM spells it
# What every chat completion says of its own body, and of what it takes.
CHAT_HEADERS: RawHeaders = [
    (b"content-type", b"application/json"),
    (b"accept", b"text/event-stream, application/json"),
    (b"accept-encoding", b"identity"),
]
# Transfer codings; what is packed by one is not to be taken as it is.
_UNDERSTOOD = (b"", b"chunked")
DRAIN_SECONDS = 1.0
MAX_BODY = 64 * 1024 * 1024


@dataclass
class UpstreamError(Exception):
    """No answer, or a broken one. ``refused``: no connection could be made at all."""

    message: str
    refused: bool = False
    timed_out: bool = False

    def __str__(self) -> str:
        return self.message


Health = Literal["well", "unwell", "silent", "gone"]


class BadTarget(ValueError):
    """A path and query that no URL can hold: too long, or with bytes that may not be there."""


class Response:
    """An upstream answer whose body is still to be read. Close it in any case."""

    __slots__ = ("_next", "_stream", "headers", "status")

    def __init__(self, response: httpx.Response) -> None:
        stream = response.stream
        self._next: Callable[[], Awaitable[bytes]]
        if isinstance(stream, Arriving):
            self._next = stream.read
        else:
            assert isinstance(stream, httpx.AsyncByteStream)
            self._next = _reader(aiter(stream))
        self._stream = stream
        self.status = response.status_code
        self.headers = tuple([(k.lower(), v) for k, v in response.headers.raw])

    def header(self, name: bytes) -> bytes:
        for key, value in self.headers:
            if key == name:
                return value
        return b""

    def tap(self, take: Callable[[bytes], None]) -> None:
        """Have ``take`` see every piece of the body that is read."""
        read = self._next

        async def tapped() -> bytes:
            data = await read()
            take(data)
            return data

        self._next = tapped

    async def next_bytes(self) -> bytes:
        """What comes next of the body; nothing at its end. Raises :class:`UpstreamError`."""
        try:
            return await self._next()
        except (httpx.HTTPError, aiohttp.ClientError, OSError, RuntimeError) as error:
            raise _translated(error) from error

    async def read(self, limit: int = MAX_BODY, *, cut: bool = False) -> bytes:
        """The body, or with ``cut`` its first ``limit`` bytes. Raises :class:`UpstreamError`."""
        body = bytearray()
        while data := await self.next_bytes():
            body += data
            if len(body) > limit:
                if cut:
                    return bytes(body[:limit])
                raise UpstreamError(f"a body of more than {limit} bytes")
        return bytes(body)

    async def drain(self) -> None:
        """Read what little is left, so that the connection can serve the next request."""
        if isinstance(self._stream, Arriving) and self._stream.ended:
            return
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        patience = loop.call_later(DRAIN_SECONDS, task.cancel)
        try:
            while await self.next_bytes():
                pass
        except UpstreamError:
            pass
        except asyncio.CancelledError:
            if not patience.when() <= loop.time():
                raise  # somebody else's
            task.uncancel()
        finally:
            patience.cancel()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        except (httpx.HTTPError, aiohttp.ClientError, OSError, RuntimeError):
            pass


def _reader(body: AsyncIterator[bytes]) -> Callable[[], Awaitable[bytes]]:
    async def read() -> bytes:
        return await anext(body, b"")

    return read


class Upstream:
    """The connection pool to LiteLLM. ``transport``: another httpx transport, for tests."""

    def __init__(
        self, settings: UpstreamSettings, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._base = settings.base_url.rstrip("/")
        self._limit = settings.max_connections
        self._transport = transport
        self._target = lru_cache(KNOWN)(self._at)
        self._normalised = lru_cache(KNOWN)(httpx.Headers)

    def _open(self) -> httpx.AsyncBaseTransport:
        if self._transport is None:
            context = ssl.create_default_context() if self._base.startswith("https") else False
            self._transport = Transport(self._limit, context)
        return self._transport

    async def send(
        self,
        method: str,
        target: str,
        headers: RawHeaders,
        content: bytes | Pieces | None = None,
        *,
        call_id: str | None = None,
    ) -> Response:
        """Send a request; the answer as soon as its headers are there.

        ``target``: path and query. ``call_id``: what LiteLLM is to call it in its logs. Raises
        :class:`UpstreamError`, :class:`BadTarget`.
        """
        url, ours = self._target(target)
        request = httpx.Request(
            method,
            url,
            headers=self._normalised(tuple(headers)),
            stream=Content(content) if content else httpx.ByteStream(b""),
            extensions={URL_AS_OURS: ours},
        )
        if call_id is not None:
            request.headers[CALL_ID] = call_id
        try:
            response = Response(await self._open().handle_async_request(request))
        except (httpx.HTTPError, aiohttp.ClientError, OSError) as error:
            raise _translated(error) from error
        if response.header(b"transfer-encoding").lower() not in _UNDERSTOOD:
            await response.aclose()
            raise UpstreamError("an answer in a transfer coding that nobody asked for")
        return response

    async def answers(self, url: str, seconds: float) -> bool:
        """Whether something at ``url`` answers within ``seconds``, whatever it says."""
        return await self.health(url, seconds) in ("well", "unwell")

    async def health(self, url: str, seconds: float) -> Health:
        """Of the server at ``url``: "unwell" says so, by a 5xx; "gone" takes no connection."""
        try:
            async with asyncio.timeout(seconds):
                request = httpx.Request("GET", url)
                response = await self._open().handle_async_request(request)
                await response.aclose()
                return "well" if response.status_code < 500 else "unwell"
        except (httpx.HTTPError, aiohttp.ClientError, OSError, TimeoutError) as error:
            return "gone" if _translated(error).refused else "silent"
        except (httpx.InvalidURL, ValueError):  # a port, or a host, that can't be
            return "silent"

    async def is_alive(self, seconds: float) -> bool:
        """Whether LiteLLM itself answers within ``seconds``."""
        return await self.answers(self._base + _LIVENESS_PATH, seconds)

    def _at(self, target: str) -> tuple[httpx.URL, URL]:
        """Where a path and query lead, for httpx and for our transport."""
        try:
            url = httpx.URL(self._base + target)
        except httpx.InvalidURL as error:
            raise BadTarget(str(error)) from None
        return url, as_ours(url)

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()


_NO_CONNECTION: tuple[tuple[type[Exception], str], ...] = (
    (aiohttp.ClientConnectorDNSError, "its name can't be resolved"),
    (aiohttp.ClientConnectorCertificateError, "its certificate is not trusted"),
    (aiohttp.ClientSSLError, "it does not speak TLS as it should"),
)


def _unconnected(error: Exception, cause: BaseException) -> str:
    """Why there is no connection: a server that is off, a network that is gone, a bad name."""
    for kind, said in _NO_CONNECTION:
        if isinstance(error, kind) or isinstance(cause, kind):
            return said
    if isinstance(cause, OSError) and cause.errno not in (None, errno.ECONNREFUSED):
        return f"no connection ({os.strerror(cause.errno)})"
    return "the connection was refused"


def _translated(error: Exception) -> UpstreamError:
    cause = error.__cause__ or error
    # aiohttp keeps its errors where they were raised: with a traceback, all of the request, too.
    error.__traceback__ = cause.__traceback__ = None

    def is_a(*kinds: type[Exception]) -> bool:
        # aiohttp's own come of the system's; a general transport's come of aiohttp's.
        return isinstance(error, kinds) or isinstance(cause, kinds)

    if is_a(httpx.ConnectError, aiohttp.ClientConnectorError, ConnectionRefusedError):
        return UpstreamError(_unconnected(error, cause), refused=True)
    if is_a(aiohttp.ServerDisconnectedError):
        return UpstreamError("the connection was closed before an answer came")
    if is_a(aiohttp.ServerTimeoutError):
        return UpstreamError("no connection within the time limit", refused=True)
    # A RuntimeError is aiohttp's, where nobody waited for the body while its connection closed.
    if is_a(aiohttp.ClientPayloadError, RuntimeError):
        return UpstreamError("the connection broke off inside the answer")
    if isinstance(error, httpx.TimeoutException) and not isinstance(
        cause, (ConnectionError, aiohttp.ClientConnectionError)
    ):
        return UpstreamError("the connection timed out", timed_out=True)
    return UpstreamError(f"the connection failed ({type(cause).__name__})")
