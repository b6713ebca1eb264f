"""The outermost ASGI app: every request's first checks, then its way.

Chat completions and passed-through paths are raw ASGI, for a FastAPI route costs as much as half
the rest (0.17 ms); everything an operator looks at is FastAPI (``operations.py``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .. import log
from ..errors import ProxyError, invalid, shutting_down
from ..proxy.downstream import Downstream
from ..proxy.services import Services
from .access import Access
from .chat_completions import ChatCompletions
from .incoming import Incoming, read_incoming
from .passthrough import Passthrough

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CHAT_PATHS = frozenset({"/v1/chat/completions", "/chat/completions"})


class Edge:
    def __init__(self, services: Services, operations: App) -> None:
        self._services = services
        self._operations = operations
        self._access = Access(services.settings)
        self._chat = ChatCompletions(services, self._access)
        self._passthrough = Passthrough(services, self._access)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._operations(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        services = self._services
        started = False

        async def watched_send(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        services.running += 1
        request: Incoming | None = None
        try:
            request = read_incoming(scope)
            self._access.check_origin(request)
            await self._route(request, scope, receive, watched_send)
        except ProxyError as error:
            if not started:
                await _refuse(error, request, send)
        except Exception as error:  # a bug of ours: said in the log, a plain sentence outside
            log.fault("internal_error", error, request_id=request.id if request else "")
            if not started:
                sentence = "an error inside the proxy; its log says more"
                await _refuse(ProxyError(500, "internal_error", sentence), request, send)
        finally:
            services.running -= 1

    async def _route(self, request: Incoming, scope: Scope, receive: Receive, send: Send) -> None:
        path = request.path
        if path in CHAT_PATHS:
            self._check_open()
            if request.method != "POST":
                raise invalid(f"use POST for {path}", status=405)
            await self._chat.handle(request, receive, send)
        elif path.startswith("/v1/") and not is_model_query(request):
            self._check_open()
            await self._passthrough.handle(request, receive, send)
        else:
            if path.startswith("/v1/"):
                self._access.check_key(request)
            await self._operations(scope, receive, send)

    def _check_open(self) -> None:
        if self._services.stopping:
            raise shutting_down()


def is_model_query(request: Incoming) -> bool:
    """Whether a request asks for models, which is answered with our tiers among them."""
    return request.method in ("GET", "HEAD") and (
        request.path == "/v1/models" or request.path.startswith("/v1/models/")
    )


async def _refuse(error: ProxyError, request: Incoming | None, send: Send) -> None:
    downstream = Downstream(send, lambda: 0.0)
    headers = error.headers()
    if request is not None:
        identity = request.id.encode()
        headers += [(b"x-mlx-stack-request-id", identity), (b"x-request-id", identity)]
    if error.status == 413:
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    await downstream.whole(error.status, headers, error.encoded())
