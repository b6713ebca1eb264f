"""LiteLLM over HTTP: what is asked of it, and which connections are used again.

A server closes a connection that was idle for too long, and may do so just when we send the next
request on it. Four rules keep that from the client:

- We keep an idle connection for a shorter time than usual servers do (``IDLE_SECONDS``).
- We don't reuse a connection that the server has closed, or written to, while it was idle.
- We send a request once more if it could not be written to its end: no server can have acted on it.
- We don't resend a request that was written to its end, because the server may have acted on it.
  RFC 9110, 9.2.2 allows that once where doing it twice changes nothing: for idempotent methods,
  and for embeddings (``repeatable``).

Redirects are not followed; cookies and the environment's proxies are not used. ``connection.py``
has what goes over one connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Literal

from ..settings import UpstreamSettings
from . import connection
from .connection import Address, Connection, Server, address_of
from .headers import RawHeaders
from .reachability import Reachability

UpstreamError = connection.UpstreamError
CHAT_PATH = "/v1/chat/completions"
CALL_ID = "x-litellm-call-id"  # LiteLLM takes this id over, up to 256 characters, and returns it
LIVENESS_PATH = "/health/liveliness"  # as LiteLLM spells it
# The headers of every chat completion about its body and the answers that it accepts.
CHAT_HEADERS: RawHeaders = [
    (b"content-type", b"application/json"),
    (b"accept", b"text/event-stream, application/json"),
    (b"accept-encoding", b"identity"),
]
# Transfer codings of an answer that we can read; with any other the body would be garbage.
_UNDERSTOOD = (b"", b"chunked")
_TARGET = re.compile(r"[!-~]{0,65536}")
HEALTH_SECONDS = 3.0  # for a server's answer when it is asked whether it is alive
# To all servers. A tier has its own limit, `max_concurrency`; pass-through requests have only this.
MAX_CONNECTIONS = 4096
IDLE_SECONDS = 3.0  # uvicorn, under which LiteLLM runs, closes an idle connection after 5 s
DRAIN_SECONDS = 1.0
MAX_BODY = 64 * 1024 * 1024
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # methods without a body
_REPEATABLE = _SAFE | {"PUT", "DELETE"}  # RFC 9110, 9.2.2


Health = Literal["well", "unwell", "silent", "gone"]


class BadTarget(ValueError):
    """A path and query that no URL can hold: too long, or with bytes that a URL must not have."""


class Response:
    """An upstream answer whose body is still to be read. The caller must close it."""

    __slots__ = ("_connection", "_give_back", "headers", "next_bytes", "status")
    # Returns the next bytes of the body; b"" at its end. Raises :class:`UpstreamError`.
    next_bytes: Callable[[], Awaitable[bytes]]

    def __init__(self, answered: Connection, give_back: Callable[[Connection], None]) -> None:
        self._connection: Connection | None = answered  # None: the response is closed
        self._give_back = give_back
        self.next_bytes = answered.next_bytes
        self.status = answered.status
        self.headers = tuple(answered.headers)

    def header(self, name: bytes) -> bytes:
        for key, value in self.headers:
            if key == name:
                return value
        return b""

    def tap(self, take: Callable[[bytes], None]) -> None:
        """Call ``take`` with every piece of the body that is read."""
        read = self.next_bytes

        async def tapped() -> bytes:
            data = await read()
            take(data)
            return data

        self.next_bytes = tapped

    async def read(self, limit: int = MAX_BODY, *, cut: bool = False) -> bytes:
        """Return the body. Raises :class:`UpstreamError`, also if it has over ``limit`` bytes.

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
        """Read the little that is left, so that the connection can serve the next request."""
        if self._connection is None or self._connection.whole:
            return
        with suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while await self.next_bytes():
                    pass

    async def aclose(self) -> None:
        """Give the connection back, or close it if the body was not read to its end."""
        answered, self._connection = self._connection, None
        if answered is not None:
            self._give_back(answered)


class _Pool:
    """The connections of one :class:`Upstream`; those that are idle, by server."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)  # for those that serve a request
        self._idle: dict[Server, list[Connection]] = {}  # the longest idle first
        self._sweep: asyncio.TimerHandle | None = None  # closes what has been idle for too long

    async def take(self, server: Server) -> Connection:
        """Return a connection for one request. Raises :class:`UpstreamError`."""
        await self._places.acquire()
        try:
            oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
            idle = self._idle.get(server)
            while idle:
                found = idle.pop()
                if found.idle_since >= oldest and not found.has_news():
                    return found
                found.close()
            return await connection.connect(server)
        except BaseException:
            self._places.release()
            raise

    def give_back(self, server: Server, used: Connection) -> None:
        """Keep a connection for the next request, or close it if it can serve none."""
        self._places.release()
        if not used.reusable:
            used.close()
            return
        used.rest()
        self._idle.setdefault(server, []).append(used)
        if self._sweep is None:
            self._sweep_later()

    def _sweep_later(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close_old)

    def _close_old(self) -> None:
        self._sweep, oldest = None, asyncio.get_running_loop().time() - IDLE_SECONDS
        for server, idle in list(self._idle.items()):
            kept = [one for one in idle if one.idle_since > oldest]
            for one in idle[: len(idle) - len(kept)]:
                one.close()
            if kept:
                self._idle[server] = kept
            else:
                del self._idle[server]
        if self._idle:
            self._sweep_later()

    def close(self) -> None:
        """Close what is idle."""
        if self._sweep is not None:
            self._sweep.cancel()
        for idle in self._idle.values():
            for one in idle:
                one.close()
        self._idle.clear()


class Upstream:
    """The connections to LiteLLM, or to another server."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self._base_url = settings.base_url.rstrip("/")
        self._address = address_of(self._base_url)
        self._pool = _Pool()
        self.reach = Reachability(partial(self.is_alive, HEALTH_SECONDS))

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
        """Send a request; return the answer as soon as its headers are there.

        ``target``: path and query. ``call_id``: the call's id in LiteLLM's logs. ``repeatable``:
        it does no harm if the server acts on it twice. Raises :class:`UpstreamError`,
        :class:`BadTarget`.
        """
        if not _TARGET.fullmatch(target):
            raise BadTarget("the path is too long, or has characters that no URL has")
        if call_id is not None:
            headers = [*headers, (CALL_ID.encode(), call_id.encode())]
        address, bodyless = self._address, method == "HEAD"
        repeatable = repeatable or method in _REPEATABLE
        parts = _written(method, address, address.target + target, headers, content)
        try:
            response = await self._ask(
                address.server, parts, bodyless=bodyless, repeatable=repeatable
            )
        except UpstreamError as error:
            if error.unreachable:
                self.reach.lost(error.message)
            raise
        if self.reach.why:
            self.reach.answered()
        if response.header(b"transfer-encoding").lower() not in _UNDERSTOOD:
            await response.aclose()
            raise UpstreamError("an answer in a transfer coding that was not requested")
        return response

    async def fetch(
        self, method: str, target: str, headers: RawHeaders, content: bytes | None = None
    ) -> tuple[int, bytes]:
        """Send a request; return status and body of the answer. Raises as :meth:`send`."""
        response = await self.send(method, target, headers, content)
        try:
            return response.status, await response.read()
        finally:
            await response.aclose()

    async def _ask(
        self, server: Server, parts: list[bytes], *, bodyless: bool = False, repeatable: bool
    ) -> Response:
        """Send a request, and once more if it can't have arrived whole, or is repeatable."""
        is_last = False
        while True:
            asked = await self._pool.take(server)
            try:
                asked.request(parts, bodyless=bodyless)
                await asked.answered()
            except BaseException as error:
                self._pool.give_back(server, asked)
                again = isinstance(error, UpstreamError) and asked.may_repeat(repeatable)
                if is_last or not again:
                    raise
            else:
                return Response(asked, partial(self._pool.give_back, server))
            is_last = True

    async def answers(self, url: str, seconds: float) -> bool:
        """Whether something at ``url`` answers within ``seconds``, whatever it says."""
        return await self.health(url, seconds) in ("well", "unwell")

    async def health(self, url: str, seconds: float) -> Health:
        """Ask a server how it is. "unwell": a 5xx; "silent": no answer; "gone": no connection."""
        try:
            async with asyncio.timeout(seconds):
                address = address_of(url)
                parts = _written("GET", address, address.target, [], None)
                response = await self._ask(address.server, parts, repeatable=True)
        except (ValueError, TimeoutError):  # ValueError: an impossible port or host
            return "silent"
        except UpstreamError as error:
            return "gone" if error.unreachable else "silent"
        await response.aclose()
        return "well" if response.status < 500 else "unwell"

    async def is_alive(self, seconds: float) -> bool:
        """Whether LiteLLM itself answers within ``seconds``."""
        return await self.answers(self._base_url + LIVENESS_PATH, seconds)

    async def aclose(self) -> None:
        await self.reach.close()
        self._pool.close()


def _written(
    method: str, address: Address, target: str, headers: RawHeaders, content: bytes | None
) -> list[bytes]:
    """Return a request's bytes: its head, and its body. Raises :class:`UpstreamError`."""
    target = target.partition("#")[0]
    target = target if target.startswith("/") else f"/{target}"
    lines = [b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (method.encode(), target.encode(), address.name)]
    lines += [b"%b: %b\r\n" % header for header in headers]
    if address.basic and not any(name.lower() == b"authorization" for name, _ in headers):
        lines.append(b"authorization: %b\r\n" % address.basic)
    if content or method not in _SAFE:
        lines.append(b"content-length: %d\r\n" % len(content or b""))
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) + 1 or head.count(b"\r") != len(lines) + 1:
        raise UpstreamError("a header to send has a line break in it")
    return [head + b"\r\n", content] if content else [head + b"\r\n"]
