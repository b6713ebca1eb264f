"""HTTP/1.1 connections to servers: how one is made, and what comes on it.

httptools parses, as it does for our clients. A connection serves one request at a time, and may
serve the next one if it is ``reusable``. Errors are :class:`UpstreamError`, in our words.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from errno import ECONNREFUSED
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import aiohappyeyeballs
import httptools

from .headers import RawHeaders

CONNECT_SECONDS = 5.0
EYEBALLS_SECONDS = 0.25  # for one address of a server, before the next one is tried as well
READ_BUFFER = 128 * 1024  # bytes that wait for their reader; the server then has to wait
MAX_HEAD = 64 * 1024
_BROKEN_OFF = "the connection broke off inside the answer"
_PORTS = {"http": 80, "https": 443}


@dataclass
class UpstreamError(Exception):
    """Upstream gave no answer, or a broken one."""

    message: str
    unreachable: bool = False  # no connection could be made at all

    def __str__(self) -> str:
        return self.message


class Server(NamedTuple):
    """What a connection leads to."""

    secure: bool  # it speaks TLS
    host: str
    port: int


class Address(NamedTuple):
    """A URL, read."""

    server: Server
    name: bytes  # for the `host` header
    target: str  # path and query, as they are; may be empty
    basic: bytes  # the `authorization` of the URL's user; b"" without one


def address_of(url: str) -> Address:
    """Read a URL of http or https. Raises ``ValueError`` for an impossible host or port."""
    parts = urlsplit(url)
    host, usual = parts.hostname, _PORTS.get(parts.scheme)
    if not host or usual is None:
        raise ValueError("no URL of http or https")
    port = parts.port or usual
    name = f"[{host}]" if ":" in host else host.encode("idna").decode()
    user, password = parts.username or "", parts.password or ""
    credentials = f"{unquote(user)}:{unquote(password)}".encode()
    return Address(
        Server(parts.scheme == "https", host, port),
        (name if port == usual else f"{name}:{port}").encode(),
        f"{parts.path}?{parts.query}" if parts.query else parts.path,
        b"Basic " + b64encode(credentials) if user or password else b"",
    )


async def connect(server: Server) -> Connection:
    """Return a new connection. Raises :class:`UpstreamError`."""
    loop = asyncio.get_running_loop()
    try:
        context = await asyncio.to_thread(_tls) if server.secure else None
        async with asyncio.timeout(CONNECT_SECONDS):
            found = await loop.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
            connected = await aiohappyeyeballs.start_connection(
                found, happy_eyeballs_delay=EYEBALLS_SECONDS
            )
            try:
                _, connection = await loop.create_connection(
                    lambda: Connection(loop),
                    sock=connected,
                    ssl=context,
                    server_hostname=server.host if server.secure else None,
                )
            except BaseException:
                connected.close()
                raise
    except (OSError, UnicodeError) as error:
        raise UpstreamError(unconnected(error), unreachable=True) from None
    return connection


@cache
def _tls() -> ssl.SSLContext:
    """Return how certificates are checked. To read the system's takes tens of milliseconds."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


_NO_CONNECTION: tuple[tuple[type[Exception], str], ...] = (
    (socket.gaierror, "its name can't be resolved"),
    (UnicodeError, "its name can't be resolved"),
    (ssl.SSLCertVerificationError, "its certificate is not trusted"),
    (ssl.SSLError, "its TLS handshake fails"),
)


def unconnected(error: Exception) -> str:
    """Return why there is no connection: server off, no network, a bad name, TLS."""
    for kind, reason in _NO_CONNECTION:
        if isinstance(error, kind):
            return reason
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, TimeoutError) and number is None:
        return "no connection within the time limit"
    if number not in (None, ECONNREFUSED):
        return f"no connection ({os.strerror(number)})"
    return "the connection was refused"


class Connection(asyncio.Protocol):
    """One connection. :meth:`request` begins an exchange on it, and forgets the one before."""

    __slots__ = (
        *("_asked", "_bodyless", "_come", "_keeps", "_loop", "_lost", "_news", "_parser"),
        *("_parts", "_paused", "_transport", "_waiter", "_waiting", "headers", "idle_since"),
        *("status", "whole", "written"),
    )
    _transport: asyncio.Transport
    _parser: httptools.HttpResponseParser | None  # None: the connection is lost

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self._lost = ""  # why no more of an answer comes; "": more may come
        self._asked = False  # a request has been written since the last answer was taken
        self._paused = False  # the server has to wait
        self._parts: list[bytes] = []  # of the body, not read yet
        self._waiting = 0  # bytes of them
        self.written = True  # the request was handed to the operating system whole
        self.idle_since = 0.0

    def request(self, parts: Iterable[bytes], *, bodyless: bool) -> None:
        """Write a request. ``bodyless``: its answer has no body, whatever its headers say."""
        self.status = 0  # of the answer; 0: it hasn't come
        self.headers: RawHeaders = []  # names in lower case
        self.whole = False  # the answer has come to its end
        self._bodyless = bodyless
        self._keeps = True  # the server keeps the connection after the answer
        self._come = 0  # bytes of the answer's head
        self._asked = True
        if self._transport.is_closing():
            self.written = False
            self._lose("the connection was closed before an answer came")
        else:
            self._transport.writelines(parts)

    def may_repeat(self, repeatable: bool) -> bool:
        """Whether a failed request may be sent again. ``repeatable``: doing it twice is no harm."""
        return not self._come and (repeatable or not self.written)

    @property
    def reusable(self) -> bool:
        """Whether the connection may serve another request."""
        return self.whole and self._keeps and self.written and not self._transport.is_closing()

    def has_news(self) -> bool:
        """Whether an idle connection has bytes, or an end, that the event loop hasn't seen yet."""
        return self._transport.is_closing() or bool(self._news.poll(0))

    async def answered(self) -> None:
        """Wait for an answer's status and headers. Raises :class:`UpstreamError`."""
        while not self.status:
            if self._lost:
                raise UpstreamError(self._lost)
            await self._wait()

    async def next_bytes(self) -> bytes:
        """Return the next bytes of the body; b"" at its end. Raises :class:`UpstreamError`."""
        while not self._parts:
            if self.whole:
                return b""
            if self._lost:
                raise UpstreamError(self._lost)
            await self._wait()
        return self._taken()

    def _taken(self) -> bytes:
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._waiting = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return data

    def rest(self) -> None:
        """Drop what is unread of the answer; whatever comes now is out of step."""
        self._asked = False
        if self._parts:
            self._taken()
        self.idle_since = self._loop.time()

    def close(self) -> None:
        """End the connection now: what is unread, or unsent, is dropped."""
        self._asked = False
        self._parts.clear()
        self._transport.abort()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _lose(self, why: str) -> None:
        if not self._lost:
            self._lost = _BROKEN_OFF if self._asked and self.status else why
        self._wake()

    # What the event loop reports

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        if transport.get_extra_info("sslcontext") is None:
            transport.set_write_buffer_limits(0)  # so that `written` is exact
        self._news = select.poll()
        self._news.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._parser = parser = httptools.HttpResponseParser(self)
        parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )

    def pause_writing(self) -> None:
        self.written = False

    def resume_writing(self) -> None:
        self.written = True

    def data_received(self, data: bytes) -> None:
        if not self._asked or self._parser is None:
            self._transport.abort()  # nobody has asked
            return
        if not self.status:
            self._come += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keeps = False
            if not self.whole:
                self._lose(f"the connection failed ({type(error).__name__})")
                self._transport.abort()
            return
        if not self.status and self._come > MAX_HEAD:
            self._lose(f"an answer's headers have more than {MAX_HEAD} bytes")
            self._transport.abort()
        else:
            self._wake()

    def eof_received(self) -> None:
        if self._asked and self.status and not self.whole:
            names = {name for name, _ in self.headers}
            self.whole = names.isdisjoint((b"content-length", b"transfer-encoding"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._parser = None  # it refers to this: leave no cycle
        why = f"failed ({type(exc).__name__})" if exc else "was closed before an answer came"
        self._lose(f"the connection {why}")

    # What the parser reports

    def on_message_begin(self) -> None:
        if self.status:
            self._keeps = False  # two answers to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # else it is a trailer's
            self.headers.append((name.lower(), value.strip()))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if self.status or status < 200:  # more answers follow
            self.headers = self.headers if self.status else []
            return
        self.status = status
        self._keeps = self._parser.should_keep_alive() and not self._bodyless
        self.whole = self._bodyless

    def on_body(self, data: bytes) -> None:
        if self.whole:
            return
        self._parts.append(data)
        self._waiting += len(data)
        if self._waiting > READ_BUFFER and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self.whole = bool(self.status)
