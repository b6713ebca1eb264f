"""The reliability layer in LiteLLM's process: the proxy's own edge before LiteLLM's routes.

LiteLLM's app is an ASGI app: middlewares, and below them the router. :class:`Layer` takes the
router's place. What the proxy would judge goes through the proxy's :class:`Edge`, with all that is
behind it; its attempts are calls of LiteLLM's router in this process (``in_process.py``). All else
goes to the router as if nothing stood there. An attempt is called below the layer, so none can come
back to it.

LiteLLM's hooks for callbacks can't do this: none of them can put another reply, a stream or a
success in the place of a failed call (measured: docs/inside-litellm.md). The callback is only how
LiteLLM's file names us, and :class:`Reliability` overrides none of its methods.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy import proxy_server

from .. import main
from ..engine import passthrough_paths
from ..engine.downstream import Send
from ..engine.watch import Receive
from ..reload import Reloader
from ..server import operations
from ..server.edge import Edge, is_guarded, is_model_query
from ..telemetry import log
from .given import GivenInside, given_beside
from .in_process import App, InProcess, Scope, client_scope

_OURS = "/mlx-stack/"
_METRICS = f"{_OURS}metrics"  # for at /metrics there are LiteLLM's own
_NO_WEBSOCKET = {"type": "websocket.http.response.start", "status": 426, "headers": []}


class Reliability(CustomLogger):  # type: ignore[misc]
    """What stands in LiteLLM's list of callbacks. The work is done by :class:`Layer`."""


class Layer:
    """Stands where LiteLLM's router stood: ``routes`` is that router."""

    def __init__(self, given: GivenInside, routes: App) -> None:
        settings = given.read()
        log.configure(settings.observability, libraries=False)  # which are LiteLLM's to set up
        services = main.build_services(settings, upstream=InProcess(settings.upstream, routes))
        self._reloader = Reloader(given, settings, functools.partial(main.change, services))
        self._services = services
        self._routes = routes
        self._edge = Edge(services, operations.build(services, lambda _: main.opened(services)))
        self._open = AsyncExitStack()
        self._opening: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if scope["type"] == "http" and _is_judged(scope["method"], path):
            await self._judge({**scope, "path": path}, receive, send)
        elif scope["type"] == "websocket" and is_guarded(path):
            await _refuse_websocket(scope, send)
        else:
            await self._routes(scope, receive, send)

    async def _judge(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._opening is not None:
            await asyncio.shield(self._opening)
        before = client_scope.set(scope)
        try:
            if scope["path"] == _METRICS:
                scope = {**scope, "path": "/metrics"}
            await self._edge(scope, receive, send)
        finally:
            client_scope.reset(before)

    def open(self) -> None:
        """Begin to open the store and what else there is; requests wait for it."""
        self._opening = asyncio.create_task(self._opened())

    async def _opened(self) -> None:
        try:
            await self._open.enter_async_context(main.opened(self._services))
        except Exception as error:  # as the proxy, LiteLLM then ends
            log.fault("start_failed", error)
            raise SystemExit(1) from None
        self._reloader.start()
        self._opening = None

    async def close(self) -> None:
        self._services.life.stopping = True
        if self._opening is not None:
            await asyncio.wait([self._opening])
        await self._reloader.close()
        await self._open.aclose()


async def _refuse_websocket(scope: Scope, send: Send) -> None:
    """Codex tries one before HTTP, at which LiteLLM would answer around us."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1000})
        return
    await send(_NO_WEBSOCKET)
    await send({"type": "websocket.http.response.body", "body": b""})


def _is_judged(method: str, path: str) -> bool:
    """Whether the proxy's edge answers. Elsewhere under /v1/ LiteLLM has its administration."""
    return (
        is_guarded(path)
        or path.startswith(_OURS)
        or is_model_query(method, path)
        or passthrough_paths.serves_models(method, path)
    )


@functools.cache
def started() -> Reliability:
    """Put the layer in place, once a process; LiteLLM's event loop runs, for it reads its file.

    Raises :class:`SettingsError`, with which LiteLLM doesn't start.
    """
    router = proxy_server.app.router
    given = given_beside(proxy_server.user_config_file_path)
    layer = Layer(given, router.middleware_stack)
    layer.open()
    router.middleware_stack = layer
    # LiteLLM tells no callback that it ends; this is the last it does then.
    proxy_server.proxy_shutdown_event = _closing(layer, proxy_server.proxy_shutdown_event)
    log.get().info("inside_litellm", config=str(given.path) if given.path else None)
    return Reliability()


def _closing(layer: Layer, litellm: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(litellm)
    async def closing(*args: Any, **named: Any) -> Any:
        await layer.close()
        return await litellm(*args, **named)

    return closing
