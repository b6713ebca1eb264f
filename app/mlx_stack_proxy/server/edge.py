"""The edge of the app: checks each request, then passes it to the handler of its path.

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
from typing import Any, NamedTuple

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from .. import log
from ..driver import response_headers
from ..driver.services import Services
from ..engine.downstream import Downstream, Send
from ..engine.headers import RawHeaders
from ..engine.watch import Receive
from ..errors import INVALID_REQUEST, ProxyError, invalid, shutting_down
from ..state.store import StoreError
from ..wire.dialect import Dialect, error_reply
from ..wire.table import BY_COUNT_PATH, BY_PATH
from .access import Access
from .chat_completions import CHAT_PATHS
from .incoming import PASSED_ON, BodyRefused, ClientGone, Handler, Incoming, read_incoming

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

DISCARD_SECONDS = 2.0  # for the rest of a refused body
_SLASHES = re.compile("/+")
# The paths that an exchange or a count of tokens answers.
_GUARDED = frozenset(CHAT_PATHS) | BY_PATH.keys() | BY_COUNT_PATH.keys()


class Refusal(NamedTuple):
    """An error's response, ready to be sent."""

    status: int
    headers: RawHeaders
    body: bytes


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
        """Let FastAPI answer. An error of its is not counted: no model was meant."""
        if request.path.startswith("/v1/"):
            self._access.check_key(request)

        async def marked(message: Any) -> None:
            if message["type"] == "http.response.start":
                downstream.started = True
                message = {**message, "headers": [*message["headers"], *self._marks(request)]}
            await downstream.send(message)

        try:
            await self.others(scope, receive, marked)
        except (ProxyError, StoreError, HTTPException) as error:
            if isinstance(error, StoreError):
                self._services.metrics.count("store_errors")
            ours = _as_ours(error, request)
            await self._refuse(ours, request, receive, downstream, counted=False)

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
            await self._refuse(error, request, receive, downstream)
        except asyncio.CancelledError:
            if not services.life.stopping:
                raise
            # The grace of the shutdown is over, and this pass-through request is not.
            if downstream.started:
                log.get().warning("broken_off", why="the proxy is shutting down")
            await self._refuse(shutting_down(), request, receive, downstream)
        except Exception as error:  # our bug: the log gets the traceback, the client a sentence
            log.fault("internal_error", error)
            sentence = "an error inside the proxy; its log has details"
            fault = ProxyError(500, "internal_error", sentence)
            await self._refuse(fault, request, receive, downstream, counted=False)
        finally:
            services.life.running -= 1

    async def _refuse(
        self,
        error: ProxyError,
        request: Incoming | None,
        receive: Receive,
        downstream: Downstream,
        *,
        counted: bool = True,
    ) -> None:
        """Answer a request with an error, unless a response has begun."""
        if downstream.started:
            return
        if counted:
            self._count(error)
        reply = self._reply_to(error, request)
        # After an error, a client that sent `Expect: 100-continue` may send its body or not. Close,
        # for its next request could be taken for that body.
        expects_continue = request is not None and "expect" in request.headers
        unread = isinstance(error, BodyRefused)
        if unread or expects_continue:
            reply.headers.append((b"connection", b"close"))
        await downstream.start(reply.status, reply.headers)
        await downstream.write(reply.body)
        if unread:
            await _discard_body(receive)
        await downstream.end()

    def refuse(self, error: ProxyError, scope: Scope | None) -> Refusal:
        """Return the response for an error that the server answers itself.

        ``scope``: the request, which is then counted as refused; None: its head is not complete.
        """
        request = None
        if scope is not None:
            with contextlib.suppress(ProxyError):
                request = read_incoming(scope)
                log.request_id.set(request.id)
            self._count(error)
        return self._reply_to(error, request)

    def _reply_to(self, error: ProxyError, request: Incoming | None) -> Refusal:
        """Write an error in the dialect of the request's path; elsewhere as OpenAI writes it."""
        path = _tidy(request.path) if request is not None else ""
        dialect: Dialect | None = BY_PATH.get(path) or BY_COUNT_PATH.get(path)
        reply = error_reply(dialect, error, request.id if request is not None else "")
        body = orjson.dumps(reply.body)
        length = (b"content-length", b"%d" % len(body))
        return Refusal(reply.status, [*reply.headers, length, *self._marks(request)], body)

    def _count(self, error: ProxyError) -> None:
        """Count a refused request; log each kind once a minute."""
        services = self._services
        services.metrics.count("refused", str(error.status))
        if services.rate_limit.allows(("refused", error.status, error.type)):
            log.get().info(
                "refused",
                status=error.status,
                type=error.type,
                param=error.param,
                why=error.message,
                said="once a minute",
            )

    def _marks(self, request: Incoming | None) -> RawHeaders:
        """Return the headers of every response: the request's id, and the memory pressure.

        Exchanges and pass-through requests write these headers themselves.
        """
        pressure = response_headers.of_pressure(self._services.memory.pressure)
        return [*(request.id_headers if request is not None else ()), *pressure]


def _as_ours(error: ProxyError | StoreError | HTTPException, request: Incoming) -> ProxyError:
    """Return an error of an operator's route as one of ours."""
    if isinstance(error, ProxyError):
        return error
    if isinstance(error, StoreError):
        sentence = f"the session store is failing: {error}"
        return ProxyError(503, "upstream_unavailable", sentence, retry_after=5)
    endpoint = f"{request.method} {request.path[:128]}"
    sentence = f"{endpoint}: no such path; chat completions are at /v1/chat/completions"
    return invalid(sentence, status=error.status_code)


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
