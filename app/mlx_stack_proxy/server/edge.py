"""The outermost ASGI app: every request's first checks, then its way.

Chat completions and passed-through paths are raw ASGI, for a FastAPI route costs as much as half
the rest (0.17 ms); everything an operator looks at is FastAPI (``operations.py``).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from ..engine import response_headers
from ..engine.downstream import Downstream, Send
from ..engine.headers import RawHeaders
from ..engine.services import Services
from ..engine.watch import Receive
from ..errors import INVALID_REQUEST, ProxyError, invalid, shutting_down
from ..telemetry import log
from ..wire.dialect import Dialect, ErrorReply
from ..wire.table import BY_COUNT_PATH, BY_PATH
from .access import Access
from .chat_completions import ChatCompletions
from .incoming import BodyMemory, BodyRefused, ClientGone, Incoming, read_incoming
from .passthrough import Passthrough

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

DISCARD_SECONDS = 2.0
_SLASHES = re.compile("/+")
CHAT_PATHS = frozenset({"/v1/chat/completions", "/chat/completions"})
_GUARDED = CHAT_PATHS | BY_PATH.keys() | BY_COUNT_PATH.keys()


class Edge:
    def __init__(self, services: Services, operations: App) -> None:
        self._services = services
        self._operations = operations
        self._access = Access(services.settings)
        bodies = BodyMemory(services.settings.server)
        self._passthrough = Passthrough(services, self._access, bodies)
        passing = self._passthrough.handle
        self._chat = ChatCompletions(services, self._access, bodies, passing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._operations(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        services = self._services
        services.life.running += 1
        downstream = Downstream(send, asyncio.get_running_loop().time)
        request: Incoming | None = None
        try:
            request = read_incoming(scope)
            log.request_id.set(request.id)
            self._access.check_origin(request)
            _refuse_websocket(request)
            await self._route(request, scope, receive, downstream)
        except ClientGone:
            pass
        except ProxyError as error:
            if not downstream.started:
                await self._refuse(error, request, receive, send)
        except asyncio.CancelledError:
            if not services.life.stopping:
                raise
            # What passes through, and is not over when the time for it is.
            if not downstream.started:
                await self._refuse(shutting_down(), request, receive, send)
            else:
                log.get().warning("broken_off", why="the proxy is shutting down")
        except Exception as error:  # a bug of ours: said in the log, a plain sentence outside
            log.fault("internal_error", error)
            if not downstream.started:
                sentence = "an error inside the proxy; its log says more"
                failure = ProxyError(500, "internal_error", sentence)
                await _refuse(failure, request, receive, self._marked(request, send))
        finally:
            services.life.running -= 1

    async def _refuse(
        self, error: ProxyError, request: Incoming | None, receive: Receive, send: Send
    ) -> None:
        """Answer what is no exchange with an error."""
        services = self._services
        services.metrics.refused.labels(str(error.status)).inc()
        if services.rate_limit.allows(("refused", error.status, error.type)):
            log.get().info(
                "refused",
                status=error.status,
                type=error.type,
                param=error.param,
                why=error.message,
                said="once a minute",
            )
        # Who waits to be told to send the body may now send it or not: the next request could be
        # taken for it.
        expects = request is not None and "expect" in request.headers
        await _refuse(error, request, receive, self._marked(request, send), close=expects)

    async def _route(
        self, request: Incoming, scope: Scope, receive: Receive, downstream: Downstream
    ) -> None:
        path = _tidy(request.path)
        if path in _GUARDED:
            self._check_open()
            if request.method != "POST":
                raise ProxyError(405, INVALID_REQUEST, f"use POST for {path}", allow="POST")
            if path in BY_COUNT_PATH:
                await self._chat.count(request, receive, downstream, BY_COUNT_PATH[path])
            else:
                await self._chat.handle(request, receive, downstream, BY_PATH.get(path))
        elif path.startswith("/v1/") and not is_model_query(request.method, path):
            self._check_open()
            if request.method in ("CONNECT", "TRACE"):
                raise invalid(f"{request.method} is not passed through", status=405)
            await self._passthrough.handle(request, receive, downstream)
        else:
            if path.startswith("/v1/"):
                self._access.check_key(request)
            downstream.started = True  # what happens there is FastAPI's to answer
            await self._operations(scope, receive, self._marked(request, downstream.send))

    def pressure_headers(self) -> RawHeaders:
        """What every response says while memory is short, whoever writes it."""
        return response_headers.of_pressure(self._services.memory.pressure)

    def _marked(self, request: Incoming | None, send: Send) -> Send:
        """``send`` for responses that neither an exchange nor a pass-through writes.

        They, too, say which request they are of, and how short memory is.
        """

        async def marked(message: Any) -> None:
            if message["type"] == "http.response.start":
                ours = request.id_headers if request is not None else []
                ours += self.pressure_headers()
                message = {**message, "headers": [*message["headers"], *ours]}
            await send(message)

        return marked

    def _check_open(self) -> None:
        if self._services.life.stopping:
            raise shutting_down()


def _refuse_websocket(request: Incoming) -> None:
    """Refuse a WebSocket; a client that only offers another protocol is answered in HTTP.

    Raises :class:`ProxyError` (400, 426).
    """
    dialect = BY_PATH.get(request.path)
    status = 400 if dialect is None else dialect.websocket_status
    for name, value in request.raw_headers:
        if name == b"upgrade" and b"websocket" in value.lower():
            raise invalid("WebSockets are not served here; use HTTP", "upgrade", status=status)


def is_guarded(path: str) -> bool:
    """Whether an exchange answers there: chat completions, and what other dialects have for it."""
    return _tidy(path) in _GUARDED


def is_model_query(method: str, path: str) -> bool:
    """Whether a request asks for models, which is answered with our tiers among them."""
    return method in ("GET", "HEAD") and (path == "/v1/models" or path.startswith("/v1/models/"))


def _tidy(path: str) -> str:
    """A slash too many, as a base URL that ends in one makes it, is no way past the stages."""
    if path.endswith("/") or "//" in path:
        tidy = _SLASHES.sub("/", path).rstrip("/")
        return tidy if tidy in _GUARDED else path
    return path


def _reply_to(error: ProxyError, request: Incoming | None) -> ErrorReply:
    """An error in the dialect of the path that was asked."""
    path = _tidy(request.path) if request is not None else ""
    dialect: Dialect | None = BY_PATH.get(path) or BY_COUNT_PATH.get(path)
    if dialect is None or request is None:
        return ErrorReply(error.status, error.headers(), error.body())
    return dialect.error(error, request.id)


async def _refuse(
    error: ProxyError,
    request: Incoming | None,
    receive: Receive,
    send: Send,
    *,
    close: bool = False,
) -> None:
    reply = _reply_to(error, request)
    body = orjson.dumps(reply.body)
    headers = [*reply.headers, (b"content-length", str(len(body)).encode())]
    unread = isinstance(error, BodyRefused)
    if unread or close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    if unread:
        await _discard_body(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard_body(receive: Receive) -> None:
    """Read on for a moment: most clients look for the answer only once they have sent all.

    A connection closed under their hands is reset, and the answer lost with it.
    """
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        return
