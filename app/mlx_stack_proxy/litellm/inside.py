"""The reliability layer in LiteLLM's process: the proxy's own app in front of LiteLLM's routes.

LiteLLM's app is an ASGI app: middlewares, and below them the router. ``Layer`` takes the router's
place. Requests for a model (``routes.py``) go to the proxy's own app; their attempts are calls of
LiteLLM's router in this process (``in_process.py``). All other requests go straight to the router.
Attempts call the router below the layer, so they can't reach the layer again.

LiteLLM's hooks for callbacks are not enough: none can replace a failed call by another reply, a
stream or a success (benchmarks/comparison.md). ``Reliability`` is a callback only because LiteLLM's
file can name us in no other way; it overrides no hook.
"""

from __future__ import annotations

import asyncio
import functools
from contextlib import AsyncExitStack
from typing import Any

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy import proxy_server

from .. import log, main
from ..engine.downstream import Send
from ..engine.watch import Receive
from ..reload import Reloader
from ..server.edge import is_guarded
from ..server.incoming import MODEL_OF_PATH, PASSED_ON, in_time
from . import routes
from .in_process import App, InProcess, Scope, client_scope
from .settings_origin import OriginInside, origin_next_to

_NO_WEBSOCKET = {"type": "websocket.http.response.start", "status": 426, "headers": []}


class Reliability(CustomLogger):  # type: ignore[misc]
    """The entry in LiteLLM's list of callbacks. ``Layer`` does the work."""


class Layer:
    """The ASGI app that takes the place of ``router``, LiteLLM's router."""

    def __init__(self, source: OriginInside, router: App) -> None:
        settings = source.read()
        log.configure(settings.observability, libraries=False)  # LiteLLM configures these
        services = main.build_services(settings, upstream=InProcess(settings.upstream, router))
        self._reloader = Reloader(source, settings, functools.partial(main.change, services))
        self._services = services
        self._routes = router
        self._app = main.build_app(services)
        self._open = AsyncExitStack()  # the services' context
        self._opening: asyncio.Task[None] | None = None  # requests wait for this task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        way = routes.way_of(scope["method"], path) if scope["type"] == "http" else None
        if way is not None:
            await self._judge(_at(way, path, scope), receive, send)
        elif scope["type"] == "websocket" and (is_guarded(path) or self._must_count(path)):
            # Codex tries a WebSocket before HTTP, and LiteLLM would answer it without us.
            if "websocket.http.response" not in scope.get("extensions", {}):
                await send({"type": "websocket.close", "code": 1000})
                return
            await send(_NO_WEBSOCKET)
            await send({"type": "websocket.http.response.body", "body": b""})
        else:
            await self._routes(scope, receive, send)

    async def _judge(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._opening is not None:
            await asyncio.shield(self._opening)
        token = client_scope.set(scope)
        try:
            await self._app(scope, in_time(receive), send)
        finally:
            client_scope.reset(token)

    def _must_count(self, path: str) -> bool:
        """Whether a WebSocket would evade a budget's hard stop or the cloud's rule."""
        rules = self._services.settings.reliability
        strict = rules.token_budget.enabled and rules.token_budget.policy == "hard_stop"
        return (strict or not rules.escalation.cloud) and routes.asks_model(path)

    def open(self) -> None:
        """Start opening the services; requests wait until they are open."""
        self._opening = asyncio.create_task(self._opened())

    async def _opened(self) -> None:
        try:
            await self._open.enter_async_context(main.opened(self._services))
        except Exception as error:  # LiteLLM then exits, as the proxy would
            log.fault("start_failed", error)
            raise SystemExit(1) from None
        self._reloader.start()
        # The callback has done its work, and LiteLLM would call it with every request.
        litellm.callbacks = [
            callback for callback in litellm.callbacks if not isinstance(callback, Reliability)
        ]
        self._opening = None

    async def close(self) -> None:
        self._services.life.stopping = True
        if self._opening is not None:
            await asyncio.wait([self._opening])
        await self._reloader.close()
        await self._open.aclose()


def _at(way: routes.LayerRoute, path: str, scope: Scope) -> Scope:
    """Return the client's request at the layer's own path for it."""
    moved = {**scope, "path": way.path, MODEL_OF_PATH: way.model}
    if routes.is_counted(scope["method"], way.path):
        moved[PASSED_ON] = True
    if way.path != path:
        target = scope.get("root_path", "") + way.path
        moved |= {"raw_path": target.encode(), "query_string": b""}
    return moved


@functools.cache
def started() -> Reliability:
    """Put the layer in the router's place, once in each process.

    LiteLLM calls this while it reads its file, with its event loop running. Raises
    ``SettingsError``, and LiteLLM then doesn't start.
    """
    router = proxy_server.app.router
    source = origin_next_to(proxy_server.user_config_file_path)
    layer = Layer(source, router.middleware_stack)
    layer.open()
    router.middleware_stack = layer
    # LiteLLM doesn't tell callbacks that it stops: wrap the last function that it calls then.
    shutdown = proxy_server.proxy_shutdown_event

    @functools.wraps(shutdown)
    async def closing(*args: Any, **kwargs: Any) -> Any:
        await layer.close()
        return await shutdown(*args, **kwargs)

    proxy_server.proxy_shutdown_event = closing
    log.get().info("inside_litellm", config=str(source.path) if source.path else None)
    return Reliability()
