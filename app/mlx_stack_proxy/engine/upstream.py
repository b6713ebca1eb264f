"""LiteLLM over HTTP: the only module that imports aiohttp.

A server closes a connection that was idle for too long, and may do so just as we send the next
request on it. Four rules hide that from the client:

- We close idle connections earlier than common servers do (``IDLE_SECONDS``).
- We don't reuse a connection that the server closed, or wrote to, while it was idle.
- We resend a request once if it was not written completely: no server can have acted on it.
- We don't resend a request that was written completely, because the server may have acted on it.
  RFC 9110, 9.2.2 allows that once for idempotent requests: aiohttp resends idempotent methods, and
  we resend embeddings (``repeatable``).

Redirects are not followed; cookies and the environment's proxies are not used. aiohttp's errors
become :class:`UpstreamError` here.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import aiohttp
from aiohttp.connector import Connection
from multidict import CIMultiDict
from yarl import URL

from ..settings import UpstreamSettings
from .headers import RawHeaders
from .reachability import Reachability

CHAT_PATH = "/v1/chat/completions"
CALL_ID = "x-litellm-call-id"  # LiteLLM adopts this id, up to 256 characters, and returns it
LIVENESS_PATH = "/health/liveliness"  # as LiteLLM spells it
# The headers of every chat completion for its body and the accepted answers.
CHAT_HEADERS: RawHeaders = [
    (b"content-type", b"application/json"),
    (b"accept", b"text/event-stream, application/json"),
    (b"accept-encoding", b"identity"),
]
# Headers that aiohttp must not add to a request that lacks them.
_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
# Transfer codings of an answer that we can decode.
_UNDERSTOOD = (b"", b"chunked")
_TARGET = re.compile(r"[!-~]{0,65536}")
CONNECT_SECONDS = 5.0
HEALTH_SECONDS = 3.0  # for the answer to a health check
# Per server. A tier has its own limit, `max_concurrency`; pass-through requests have only this.
MAX_CONNECTIONS = 4096
IDLE_SECONDS = 3.0  # uvicorn, under which LiteLLM runs, closes an idle connection after 5 s
DRAIN_SECONDS = 1.0
READ_BUFFER = 64 * 1024
MAX_BODY = 64 * 1024 * 1024
_FAILURES = (aiohttp.ClientError, OSError, RuntimeError)


@dataclass
class UpstreamError(Exception):
    """Upstream gave no answer, or a broken one."""

    message: str
    unreachable: bool = False  # no connection could be made at all

    def __str__(self) -> str:
        return self.message


Health = Literal["well", "unwell", "silent", "gone"]


class BadTarget(ValueError):
    """A path and query that are no part of a URL: too long, or with forbidden bytes."""


class Response:
    """An upstream answer whose body is not read yet. The caller must close it."""

    __slots__ = ("_next", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._next: Callable[[], Awaitable[bytes]] = response.content.readany
        self.status = response.status
        self.headers = tuple([(k.lower(), v) for k, v in response.raw_headers])

    def header(self, name: bytes) -> bytes:
        for key, value in self.headers:
            if key == name:
                return value
        return b""

    def tap(self, take: Callable[[bytes], None]) -> None:
        """Call ``take`` with every piece of the body that is read."""
        read = self._next

        async def tapped() -> bytes:
            data = await read()
            take(data)
            return data

        self._next = tapped

    async def next_bytes(self) -> bytes:
        """Return the next bytes of the body; b"" at the end. Raises :class:`UpstreamError`."""
        try:
            return await self._next()
        except _FAILURES as error:
            raise translated(error) from error

    async def read(self, limit: int = MAX_BODY, *, cut: bool = False) -> bytes:
        """Return the body. Raises :class:`UpstreamError`, also if it exceeds ``limit`` bytes.

        With ``cut``, return the first ``limit`` bytes of a longer body instead.
        """
        body = bytearray()
        while data := await self.next_bytes():
            body += data
            if len(body) > limit:
                if cut:
                    return bytes(body[:limit])
                raise UpstreamError(f"a body of more than {limit} bytes")
        return bytes(body)

    async def drain(self) -> None:
        """Read the short rest of the body, so that the connection can be reused."""
        if self._response.content.at_eof():
            return
        with suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while await self.next_bytes():
                    pass

    async def aclose(self) -> None:
        """Release the connection, or close it if the body was not read completely."""
        with suppress(*_FAILURES):
            self._response.release()
            await self._response.wait_for_close()


class _Connector(aiohttp.TCPConnector):
    """aiohttp's connector without idle connections that the server has closed or written to."""

    async def _get(self, key: Any, traces: Any) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            if not _has_unread_data(connection):
                return connection
            connection.close()
        return None


def _has_unread_data(connection: Connection) -> bool:
    """Whether an idle connection has data or an end of file that the event loop has not seen."""
    transport = connection.transport
    socket = transport.get_extra_info("socket") if transport is not None else None
    if socket is None:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class Upstream:
    """The connection pool to LiteLLM."""

    def __init__(self, settings: UpstreamSettings) -> None:
        url, base_url = URL(settings.base_url), settings.base_url
        self._basic = ""  # the URL's credentials, for requests without a key; aiohttp refuses both
        if url.user or url.password:
            credentials = f"{url.user or ''}:{url.password or ''}".encode()
            self._basic = f"Basic {b64encode(credentials).decode()}"
            base_url = str(url.with_user(None))
        self._base_url = base_url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self.reach = Reachability(partial(self.is_alive, HEALTH_SECONDS))

    def _open(self) -> aiohttp.ClientSession:
        """Return the session, created on first use because it belongs to the running event loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(limit=MAX_CONNECTIONS, keepalive_timeout=IDLE_SECONDS),
                skip_auto_headers=_AUTOMATIC,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=READ_BUFFER,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            )
        return self._session

    async def send(
        self,
        method: str,
        target: str,
        headers: RawHeaders,
        content: bytes | None = None,
        *,
        call_id: str | None = None,
        repeatable: bool = False,
    ) -> Response:
        """Send a request; return the answer once its headers have arrived.

        ``target``: path and query. ``call_id``: the call's id in LiteLLM's logs. ``repeatable``:
        it does no harm if the server acts on it twice. Raises :class:`UpstreamError`,
        :class:`BadTarget`.
        """
        if not _TARGET.fullmatch(target):
            raise BadTarget("the path is too long, or has characters that no URL has")
        url = URL(self._base_url + target, encoded=True)
        header_map = CIMultiDict((k.decode("latin-1"), v.decode("latin-1")) for k, v in headers)
        if call_id is not None:
            header_map[CALL_ID] = call_id
        if self._basic:
            header_map.setdefault("Authorization", self._basic)
        try:
            sent = self._send_request(method, url, header_map, content, repeatable)
            response = Response(await sent)
        except (aiohttp.ClientError, OSError) as error:
            # A variable would make the error and this frame refer to each other: test_garbage.py.
            raise self._failure(error) from error
        if self.reach.why:
            self.reach.answered()
        if response.header(b"transfer-encoding").lower() not in _UNDERSTOOD:
            await response.aclose()
            raise UpstreamError("an answer in a transfer coding that was not requested")
        return response

    async def fetch(
        self, method: str, target: str, headers: RawHeaders, content: bytes | None = None
    ) -> tuple[int, bytes]:
        """Send a request; return the answer's status and body. Raises like :meth:`send`."""
        response = await self.send(method, target, headers, content)
        try:
            return response.status, await response.read()
        finally:
            await response.aclose()

    def _failure(self, error: Exception) -> UpstreamError:
        failure = translated(error)
        if failure.unreachable:
            self.reach.lost(failure.message)
        return failure

    async def _send_request(
        self,
        method: str,
        url: URL,
        headers: CIMultiDict[str],
        content: bytes | None,
        repeatable: bool,
    ) -> aiohttp.ClientResponse:
        """Send a request; resend it once if it was not written completely, or is repeatable."""
        request = partial(self._open().request, method, url, headers=headers, allow_redirects=False)
        upload = aiohttp.UploadTracker()
        try:
            return await request(data=content or None, upload_tracker=upload)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            if _is_written(upload) and not repeatable:
                raise
        return await request(data=content or None)

    async def answers(self, url: str, seconds: float) -> bool:
        """Whether there is any answer at ``url`` within ``seconds``."""
        return await self.health(url, seconds) in ("well", "unwell")

    async def health(self, url: str, seconds: float) -> Health:
        """Check a server's health. "unwell": a 5xx; "silent": no answer; "gone": no connection."""
        try:
            async with asyncio.timeout(seconds):
                async with self._open().get(url, allow_redirects=False) as response:
                    return "well" if response.status < 500 else "unwell"
        except ValueError:  # an invalid port or host
            return "silent"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return "gone" if translated(error).unreachable else "silent"

    async def is_alive(self, seconds: float) -> bool:
        """Whether LiteLLM itself answers within ``seconds``."""
        return await self.answers(self._base_url + LIVENESS_PATH, seconds)

    async def aclose(self) -> None:
        await self.reach.close()
        if self._session is not None:
            await self._session.close()


def _is_written(upload: aiohttp.UploadTracker) -> bool:
    """Whether a failed request was completely handed to the operating system."""
    written = upload.upload_complete
    return written.done() and written.exception() is None


_NO_CONNECTION: tuple[tuple[type[Exception], str], ...] = (
    (aiohttp.ClientConnectorDNSError, "its name can't be resolved"),
    (aiohttp.ClientConnectorCertificateError, "its certificate is not trusted"),
    (aiohttp.ClientSSLError, "its TLS handshake fails"),
)


def _connection_problem(error: Exception, cause: BaseException) -> str:
    """Return why there is no connection: server off, no network, a bad name, TLS."""
    for kind, reason in _NO_CONNECTION:
        if isinstance(error, kind) or isinstance(cause, kind):
            return reason
    if isinstance(cause, OSError) and cause.errno not in (None, errno.ECONNREFUSED):
        return f"no connection ({os.strerror(cause.errno)})"
    return "the connection was refused"


def translated(error: Exception) -> UpstreamError:
    """Turn an error of aiohttp or the system into an :class:`UpstreamError`."""
    cause = error.__cause__ or error
    # aiohttp keeps its errors; their tracebacks would keep the whole request alive.
    error.__traceback__ = cause.__traceback__ = None
    if isinstance(error, (aiohttp.ClientConnectorError, ConnectionRefusedError)):
        return UpstreamError(_connection_problem(error, cause), unreachable=True)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return UpstreamError("the connection was closed before an answer came")
    if isinstance(error, aiohttp.ServerTimeoutError):
        return UpstreamError("no connection within the time limit", unreachable=True)
    # aiohttp raises RuntimeError if the connection closed while nothing was reading the body.
    if isinstance(error, (aiohttp.ClientPayloadError, RuntimeError)):
        return UpstreamError("the connection broke off inside the answer")
    return UpstreamError(f"the connection failed ({type(cause).__name__})")
