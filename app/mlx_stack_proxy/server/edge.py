"""The edge of the app: checks each request, then hands it to whoever answers its path.

``Edge`` stands before all routes of the FastAPI app (``app.py``). It hands the paths that models
answer to their handlers, past the router, and all others to FastAPI. An error that any of them
raises becomes the response here, in the dialect of its path.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

import orjson
from starlette.requests import ClientDisconnect

from .. import log
from ..driver import response_headers
from ..driver.services import Services
from ..engine.downstream import Downstream, Send
from ..engine.headers import RawHeaders
from ..engine.watch import Receive
from ..errors import INVALID_REQUEST, ProxyError, invalid, shutting_down
from ..wire.dialect import Dialect, ErrorReply
from ..wire.table import BY_COUNT_PATH, BY_PATH
from .access import Access
from .chat_completions import CHAT_PATHS
from .incoming import PASSED_ON, BodyRefused, ClientGone, Incoming, read_incoming

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Handler = Callable[[Incoming, Receive, Downstream], Awaitable[None]]

DISCARD_SECONDS = 2.0  # for the rest of a refused body
_SLASHES = re.compile("/+")
# The paths that an exchange or a count of tokens answers.
_GUARDED = frozenset(CHAT_PATHS) | BY_PATH.keys() | BY_COUNT_PATH.keys()


class Edge:
    """The app's outermost part.

    ``handlers`` answer the paths that models answer, for POST alone; ``pass_on`` answers every
    other path under ``/v1/`` but the model list's.
    """

    others: App  # FastAPI's part, which answers the rest, and gets lifespan events

    def __init__(
        self, services: Services, access: Access, handlers: Mapping[str, Handler], pass_on: Handler
    ) -> None:
        self._services = services
        self._access = access
        self._handlers = handlers
        self._pass_on = pass_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.others(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self._answer(scope, receive, send)

    def _handler(self, request: Incoming, scope: Scope) -> Handler:
        """Return who answers a request. Raises ``ProxyError`` (405, 503)."""
        path = _tidy(request.path)
        handler, allowed = self._handlers.get(path), request.method == "POST"
        if handler is None:
            is_ours = not path.startswith("/v1/") and PASSED_ON not in scope
            if is_ours or is_model_query(request.method, path):
                return partial(self._ask_others, scope)
            handler, allowed = self._pass_on, request.method not in ("CONNECT", "TRACE")
        if self._services.life.stopping:
            raise shutting_down()
        if not allowed and path in self._handlers:
            raise ProxyError(405, INVALID_REQUEST, f"use POST for {path}", allow="POST")
        if not allowed:
            raise invalid(f"{request.method} is not passed through", status=405)
        return handler

    async def _ask_others(
        self, scope: Scope, request: Incoming, receive: Receive, downstream: Downstream
    ) -> None:
        """Let FastAPI answer, which answers its errors itself."""
        if request.path.startswith("/v1/"):
            self._access.check_key(request)
        downstream.started = True
        await self.others(scope, receive, self._marked(request, downstream.send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, have it answered, and turn an error into a response."""
        services = self._services
        services.life.running += 1
        downstream = Downstream(send, asyncio.get_running_loop().time)
        request: Incoming | None = None
        try:
            request = read_incoming(scope)
            log.request_id.set(request.id)
            self._access.check_origin(request)
            _refuse_websocket(request)
            await self._handler(request, scope)(request, receive, downstream)
        except (ClientGone, ClientDisconnect):
            pass
        except ProxyError as error:
            if not downstream.started:
                await self._refuse(error, request, receive, send)
        except asyncio.CancelledError:
            if not services.life.stopping:
                raise
            # The grace of the shutdown is over, and this pass-through request is not.
            if not downstream.started:
                await self._refuse(shutting_down(), request, receive, send)
            else:
                log.get().warning("broken_off", why="the proxy is shutting down")
        except Exception as error:  # our bug: the log gets the traceback, the client a sentence
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
        """Answer a request with an error, and count it."""
        self._count(error)
        # After an error, a client that sent `Expect: 100-continue` may send its body or not. Close,
        # for its next request could be taken for that body.
        expects_continue = request is not None and "expect" in request.headers
        await _refuse(error, request, receive, self._marked(request, send), close=expects_continue)

    def refusal(self, error: ProxyError, scope: Scope | None) -> ErrorReply:
        """Return the response for an error that the server answers itself.

        ``scope``: the request, which is then counted as refused; None: its head is not complete.
        """
        request = None
        if scope is not None:
            with contextlib.suppress(ProxyError):
                request = read_incoming(scope)
                log.request_id.set(request.id)
            self._count(error)
        reply = _reply_to(error, request)
        marks = [*(request.id_headers if request is not None else ()), *self.pressure_headers()]
        return ErrorReply(reply.status, [*reply.headers, *marks], reply.body)

    def _count(self, error: ProxyError) -> None:
        """Count a refused request; log each kind once a minute."""
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

    def pressure_headers(self) -> RawHeaders:
        """Return the headers that every response has while memory is short; else none."""
        return response_headers.of_pressure(self._services.memory.pressure)

    def _marked(self, request: Incoming | None, send: Send) -> Send:
        """Wrap ``send``: add the request's id and the memory pressure to a response's headers.

        Exchanges and pass-through requests write these headers themselves.
        """

        async def marked(message: Any) -> None:
            if message["type"] == "http.response.start":
                added = request.id_headers if request is not None else []
                added += self.pressure_headers()
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        return marked


def _refuse_websocket(request: Incoming) -> None:
    """Refuse a WebSocket. An offer of any other protocol is ignored, and answered in HTTP/1.1.

    Raises ``ProxyError`` (400; 426 where the dialect's clients then go on with HTTP).
    """
    dialect = BY_PATH.get(_tidy(request.path))
    status = 400 if dialect is None else dialect.websocket_status
    for name, value in request.raw_headers:
        if name == b"upgrade" and b"websocket" in value.lower():
            raise invalid("WebSockets are not served here; use HTTP", "upgrade", status=status)


def is_guarded(path: str) -> bool:
    """Whether an exchange or a count of tokens answers at ``path``, in any dialect."""
    return _tidy(path) in _GUARDED


def is_model_query(method: str, path: str) -> bool:
    """Whether a request asks for the model list or one model; our tiers are in the answer."""
    return method in ("GET", "HEAD") and (path == "/v1/models" or path.startswith("/v1/models/"))


def _tidy(path: str) -> str:
    """Return a guarded path without doubled or trailing slashes; any other path as it is.

    A base URL that ends in a slash gives such a path, which must not get past the stages.
    """
    if path.endswith("/") or "//" in path:
        tidy = _SLASHES.sub("/", path).rstrip("/")
        return tidy if tidy in _GUARDED else path
    return path


def _reply_to(error: ProxyError, request: Incoming | None) -> ErrorReply:
    """Write an error in the dialect of the request's path; elsewhere as OpenAI writes it."""
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
    """Read the rest of a refused body, for at most ``DISCARD_SECONDS``.

    Most clients look for the answer only after they have sent the whole body. If we closed the
    connection before, it would be reset, and the answer lost.
    """
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
    except TimeoutError:
        return
