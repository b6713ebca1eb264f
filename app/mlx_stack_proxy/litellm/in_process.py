"""Calls of LiteLLM's own endpoints in its own process: the ASGI app in place of the connection.

:class:`InProcess` stands where ``engine/upstream.py`` has its connection pool. A call runs the app
of LiteLLM's routes in a task of its own, with the client's connection (its address, LiteLLM's
state for it) and a request of ours; what that app sends is read piece by piece, and it waits while
more than ``MOST_WAITING`` pieces are unread. LiteLLM does for each attempt what it does for a
request that comes over HTTP: it checks the key, its limits and guardrails, routes, counts, logs.

An answer that is left before its end is told to LiteLLM as a client that has gone; after
``LEAVE_SECONDS`` the task is cancelled, for LiteLLM lets a call that doesn't stream run on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

from ..engine.headers import RawHeaders
from ..engine.upstream import CALL_ID, Response, Upstream, UpstreamError
from ..settings import UpstreamSettings
from ..telemetry import log

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Any]

MOST_WAITING = 16
LEAVE_SECONDS = 1.0
# The client's request, whose connection a call of ours takes over.
client_scope: ContextVar[Scope] = ContextVar("client_scope")


class InProcess(Upstream):
    """LiteLLM's routes as our upstream. Health URLs of tiers are asked over HTTP, as ever."""

    def __init__(self, settings: UpstreamSettings, app: App) -> None:
        super().__init__(settings)
        self._app = app

    async def send(
        self,
        method: str,
        target: str,
        headers: RawHeaders,
        content: bytes | None = None,
        *,
        call_id: str | None = None,
    ) -> Response:
        scope = _scope(method, target, _headers(headers, content, call_id))
        call = _Call(self._app, scope, content)
        try:
            status, answered = await call.answered
        except BaseException:
            call.leave()
            raise
        return _Response(call, status, answered)

    async def is_alive(self, seconds: float) -> bool:
        return True  # for this is its process


def _scope(method: str, target: str, headers: RawHeaders) -> Scope:
    path, _, query = target.partition("?")
    return {
        **client_scope.get(),
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": headers,
    }


def _headers(given: RawHeaders, content: bytes | None, call_id: str | None) -> RawHeaders:
    headers = [h for h in given if h[0] != b"host"]
    headers += [h for h in client_scope.get()["headers"] if h[0] == b"host"]
    if content is not None:
        headers.append((b"content-length", b"%d" % len(content)))
    if call_id is not None:
        headers.append((CALL_ID.encode(), call_id.encode("latin-1")))
    return headers


class _Call:
    """One run of the app. ``answered``: its status and headers, or :class:`UpstreamError`."""

    def __init__(self, app: App, scope: Scope, content: bytes | None) -> None:
        self.answered: asyncio.Future[tuple[int, RawHeaders]] = asyncio.Future()
        self.ended = False
        self._parts: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._gone = asyncio.Event()
        self._request: Message | None = {
            "type": "http.request",
            "body": content or b"",
            "more_body": False,
        }
        self._task = asyncio.ensure_future(self._run(app, scope))

    async def _run(self, app: App, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:  # which LiteLLM, over HTTP, makes a 500 of
            log.fault("litellm_fault", error)
        finally:
            self._arrived.set()
            if not self.answered.done():
                self.answered.set_exception(UpstreamError("LiteLLM ended without an answer"))

    async def _receive(self) -> Message:
        if self._request is not None:
            message, self._request = self._request, None
            return message
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if not self.answered.done():
                headers = [(name.lower(), value) for name, value in message["headers"]]
                self.answered.set_result((message["status"], headers))
            return
        if part := message.get("body"):
            self._parts.append(part)
        self.ended = self.ended or not message.get("more_body")
        self._arrived.set()
        while len(self._parts) > MOST_WAITING and not self._gone.is_set():
            self._taken.clear()
            await self._taken.wait()
        if self._gone.is_set() and not self.ended:
            raise OSError("nobody reads this answer any more")  # as ASGI 2.4 has it

    async def next_bytes(self) -> bytes:
        """All that has come and was not read yet; nothing at the end."""
        while not self._parts:
            if self.ended:
                return b""
            if self._task.done():
                raise UpstreamError("LiteLLM broke off inside the answer")
            self._arrived.clear()
            await self._arrived.wait()
        data = self._parts.popleft() if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._taken.set()
        return data

    def leave(self) -> None:
        """Nobody reads any more. After its end, LiteLLM may go on counting and logging."""
        self._gone.set()
        self._taken.set()
        if self.answered.done() and not self.answered.cancelled():
            self.answered.exception()  # seen, though nobody waits for it now
        if not self.ended:
            self._task.get_loop().call_later(LEAVE_SECONDS, self._task.cancel)


class _Response(Response):
    """What a call answers."""

    __slots__ = ("_call",)

    def __init__(self, call: _Call, status: int, headers: RawHeaders) -> None:
        self._call = call
        self._next = call.next_bytes
        self.status = status
        self.headers = tuple(headers)

    async def drain(self) -> None:
        """There is no connection to keep: what is left unread is left."""

    async def aclose(self) -> None:
        self._call.leave()
