"""Calls LiteLLM's endpoints in LiteLLM's process, through its ASGI app instead of a connection.

``InProcess`` replaces the connection pool of ``engine/upstream.py``. Each call runs the app of
LiteLLM's routes in its own task, with our request on the client's connection (its address and
LiteLLM's state for it). The caller reads what the app sends piece by piece; the app waits while
more than ``MAX_WAITING`` pieces are unread. LiteLLM treats each attempt like a request over HTTP:
it checks the key, its limits and guardrails, routes, counts and logs.

If the caller leaves before an answer's end, LiteLLM sees a disconnected client. After
``LEAVE_SECONDS`` the task is cancelled, because LiteLLM lets a call that doesn't stream run on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

from .. import log
from ..engine.headers import RawHeaders
from ..engine.upstream import CALL_ID, Response, Upstream, UpstreamError
from ..settings import UpstreamSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Any]

MAX_WAITING = 16  # unread pieces
LEAVE_SECONDS = 1.0  # how long LiteLLM may take to notice that the client has left
# The client's request, whose connection our calls reuse.
client_scope: ContextVar[Scope] = ContextVar("client_scope")


class InProcess(Upstream):
    """LiteLLM's routes as our upstream. Tiers' health URLs are still asked over HTTP."""

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
        repeatable: bool = False,
    ) -> Response:
        host = [h for h in client_scope.get()["headers"] if h[0] == b"host"]
        sent = [*(h for h in headers if h[0] != b"host"), *host]
        if content is not None:
            sent.append((b"content-length", b"%d" % len(content)))
        if call_id is not None:
            sent.append((CALL_ID.encode(), call_id.encode("latin-1")))
        path, _, query = target.partition("?")
        scope = {
            **client_scope.get(),
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "headers": sent,
        }
        response = _Response(self._app, scope, content)
        try:
            await response.began
        except BaseException:
            await response.aclose()
            raise
        return response

    async def is_alive(self, seconds: float) -> bool:
        return True  # this is LiteLLM's process


class _Response(Response):
    """One run of the app: its ``receive`` and ``send``, and the reader of its answer."""

    def __init__(self, app: App, scope: Scope, content: bytes | None) -> None:
        self._next = self._unread
        # Done once status and headers have arrived; an `UpstreamError` if the app ends without any.
        self.began: asyncio.Future[None] = asyncio.Future()
        self.ended = False  # whether the app has sent the whole answer
        self._parts: deque[bytes] = deque()  # unread parts of the body
        self._arrived = asyncio.Event()  # wakes the reader
        self._taken = asyncio.Event()  # wakes the app
        self._gone = asyncio.Event()  # the caller has left and reads no more
        self._request: Message | None = {
            "type": "http.request",
            "body": content or b"",
            "more_body": False,
        }
        self._task = asyncio.ensure_future(self._run(app, scope))

    async def _run(self, app: App, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:  # over HTTP, LiteLLM would answer with a 500
            log.fault("litellm_fault", error)
        finally:
            self._arrived.set()
            if not self.began.done():
                self.began.set_exception(UpstreamError("LiteLLM ended without an answer"))

    async def _receive(self) -> Message:
        if self._request is not None:
            message, self._request = self._request, None
            return message
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if not self.began.done():
                self.status = message["status"]
                self.headers = tuple([(name.lower(), value) for name, value in message["headers"]])
                self.began.set_result(None)
            return
        if part := message.get("body"):
            self._parts.append(part)
        self.ended = self.ended or not message.get("more_body")
        self._arrived.set()
        while len(self._parts) > MAX_WAITING and not self._gone.is_set():
            self._taken.clear()
            await self._taken.wait()
        if self._gone.is_set() and not self.ended:
            raise OSError("nobody reads this answer any more")  # as in ASGI 2.4

    async def _unread(self) -> bytes:
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

    async def drain(self) -> None:
        """Do nothing: there is no connection to read empty."""

    async def aclose(self) -> None:
        """Tell the app that the client has left; soon cancel it if the answer is incomplete.

        After a complete answer, LiteLLM goes on to count and log.
        """
        self._gone.set()
        self._taken.set()
        if self.began.done() and not self.began.cancelled():
            self.began.exception()  # mark it as retrieved: nothing awaits it
        if not self.ended:
            self._task.get_loop().call_later(LEAVE_SECONDS, self._task.cancel)
