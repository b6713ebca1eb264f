"""The edge of the app: checks each request, then passes it to the handler of its path.

``Edge`` gets each request of the app (``app.py``). It hands the paths that models answer to their
handlers, and all others to FastAPI's router. An error that any of them raises becomes the response
here, in the dialect of its path.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from .. import log
from ..driver import response_headers
from ..driver.services import Services
from ..engine.downstream import BEGIN, Downstream, Send, content_length
from ..engine.headers import RawHeaders
from ..engine.watch import Receive
from ..errors import INVALID_REQUEST, ProxyError, invalid, shutting_down
from ..state.store import StoreError
from ..wire.dialect import error_reply
from ..wire.table import BY_COUNT_PATH, BY_PATH
from .access import Access
from .chat_completions import CHAT_PATHS
from .incoming import (
    PASSED_ON,
    BodyMemory,
    BodyRefused,
    ClientGone,
    Handler,
    Incoming,
    by_name,
    id_headers,
    request_id,
)

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

DISCARD_SECONDS = 2.0  # for the rest of a refused body
_SLASHES = re.compile("/+")
# The paths that an exchange or a count of tokens answers.
_GUARDED = frozenset(CHAT_PATHS) | BY_PATH.keys() | BY_COUNT_PATH.keys()


class Refusal(NamedTuple):
    """An error's response, without its ``content-length``."""

    status: int
    headers: RawHeaders
    body: bytes


class Edge:
    """Answers all requests of the app.

    ``handlers`` answer the paths that models answer, for POST alone; ``pass_on`` answers every
    other path under ``/v1/`` but the model list's; ``others``, FastAPI's part, answers the rest.
    """

    def __init__(
        self,
        services: Services,
        access: Access,
        handlers: Mapping[str, Handler],
        pass_on: Handler,
        others: App,
    ) -> None:
        self._services = services
        self._access = access
        self._bodies = BodyMemory(services.settings.server)
        self._handlers = handlers
        self._pass_on = pass_on
        self._others = others

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, call its handler, and turn an error into a response."""
        services = self._services
        begin = (scope.get("extensions") or {}).get(BEGIN, {}).get("begin")
        downstream = Downstream(send, asyncio.get_running_loop().time, begin)
        request = Incoming(scope, receive, downstream, self._bodies)
        services.life.running += 1
        try:
            log.request_id.set(request.id)
            request.check()
            self._access.check_origin(request)
            await self._handler(request)(request)
        except (ClientGone, ClientDisconnect):
            pass
        except ProxyError as error:
            await self._refuse(error, request)
        except asyncio.CancelledError:
            if not services.life.stopping:
                raise
            # The shutdown's grace period ended before this pass-through request did.
            if downstream.started:
                log.get().warning("broken_off", why="the proxy is shutting down")
            await self._refuse(shutting_down(), request)
        except Exception as error:  # our bug: the log gets the traceback, the client a sentence
            log.fault("internal_error", error)
            sentence = "an error inside the proxy; its log has details"
            fault = ProxyError(500, "internal_error", sentence)
            await self._refuse(fault, request, counted=False)
        finally:
            request.release()
            services.life.running -= 1

    def _handler(self, request: Incoming) -> Handler:
        """Return a request's handler. Raises ``ProxyError`` (400, 405, 426, 503)."""
        path, method = _tidy(request.path), request.method
        if "upgrade" in request.headers:
            _refuse_websocket(request, path)
        handler, allowed = self._handlers.get(path), method == "POST"
        if handler is None:
            is_ours = not path.startswith("/v1/") and PASSED_ON not in request.scope
            if is_ours or is_model_query(method, path):
                return self._ask_others
            handler, allowed = self._pass_on, method not in ("CONNECT", "TRACE")
        if self._services.life.stopping:
            raise shutting_down()
        if not allowed and path in self._handlers:
            raise ProxyError(405, INVALID_REQUEST, f"use POST for {path}", allow="POST")
        if not allowed:
            raise invalid(f"{method} is not passed through", status=405)
        return handler

    async def _ask_others(self, request: Incoming) -> None:
        """Let FastAPI answer. Its errors are not counted, because no model was requested."""
        if request.path.startswith("/v1/"):
            self._access.check_key(request)
        downstream = request.downstream

        async def marked(message: Any) -> None:
            if message["type"] == "http.response.start":
                downstream.started = True
                message = {**message, "headers": [*message["headers"], *self._marks(request.id)]}
            await downstream.send(message)

        try:
            await self._others(request.scope, request.receive, marked)
        except (ProxyError, StoreError, HTTPException) as error:
            if isinstance(error, StoreError):
                self._services.metrics.count("store_errors")
                sentence = f"the session store is failing: {error}"
                error = ProxyError(503, "upstream_unavailable", sentence, retry_after=5)
            elif isinstance(error, HTTPException):
                endpoint = f"{request.method} {request.path[:128]}"
                sentence = f"{endpoint}: no such path; chat completions are at {CHAT_PATHS[0]}"
                error = invalid(sentence, status=error.status_code)
            await self._refuse(error, request, counted=False)

    async def _refuse(self, error: ProxyError, request: Incoming, *, counted: bool = True) -> None:
        """Answer a request with an error, unless a response has begun."""
        request.release()  # at once: the client may be slow, and others need the memory
        downstream = request.downstream
        if downstream.started:
            return
        if counted:
            self._count(error)
        reply = self._reply_to(error, request.path, request.id)
        # After an error, a client that sent `Expect: 100-continue` may send its body or not. Close,
        # because its next request could be taken for that body.
        unread = isinstance(error, BodyRefused)
        if unread or "expect" in request.headers:
            reply.headers.append((b"connection", b"close"))
        if not unread:
            await downstream.whole(*reply)
            return
        headers = [*reply.headers, content_length(reply.body)]
        await downstream.begin(reply.status, headers, reply.body)
        # Read the rest of the body for a while. Most clients look for the answer only after they
        # have sent it all; a connection closed before would be reset, and the answer lost.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while (await request.receive()).get("more_body"):
                    pass
        await downstream.end()

    def refuse(self, error: ProxyError, scope: Scope | None) -> Refusal:
        """Return the response for an error that the server answers itself.

        ``scope``: the request, which is then counted as refused; None: its head is not complete.
        """
        if scope is None:
            return self._reply_to(error, "", "")
        identity = request_id(by_name(scope["headers"]))
        log.request_id.set(identity)
        self._count(error)
        return self._reply_to(error, scope["path"], identity)

    def _reply_to(self, error: ProxyError, path: str, identity: str) -> Refusal:
        """Write an error in the dialect of the request's path; elsewhere as OpenAI writes it."""
        path = _tidy(path)
        reply = error_reply(BY_PATH.get(path) or BY_COUNT_PATH.get(path), error, identity)
        headers = [*reply.headers, *self._marks(identity)]
        return Refusal(reply.status, headers, orjson.dumps(reply.body))

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

    def _marks(self, identity: str) -> RawHeaders:
        """Return the headers of every response: the request's id, and the memory pressure.

        Exchanges and pass-through requests write these headers themselves.
        """
        pressure = response_headers.of_pressure(self._services.memory.pressure)
        return [*id_headers(identity), *pressure] if identity else pressure


def _refuse_websocket(request: Incoming, path: str) -> None:
    """Refuse a WebSocket. An offer of any other protocol is ignored, and answered in HTTP/1.1.

    Raises ``ProxyError`` (400; 426 where the dialect's clients then go on with HTTP).
    """
    dialect = BY_PATH.get(path)
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
    """Return a guarded path without doubled or trailing slashes; any other path unchanged.

    A base URL that ends in a slash gives such a path, which must not get past the stages.
    """
    if path.endswith("/") or "//" in path:
        tidy = _SLASHES.sub("/", path).rstrip("/")
        return tidy if tidy in _GUARDED else path
    return path
