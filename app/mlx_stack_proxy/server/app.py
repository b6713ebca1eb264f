"""The FastAPI app that uvicorn serves: all of the proxy's paths.

The paths that models answer are routes with raw ASGI endpoints (:class:`DataRoute`): a usual one
costs 0.17 ms, half as much as the rest of a request, and its middlewares wrap each chunk of a
stream. The operator's paths (``operations.py``, ``admin.py``, ``web_page.py``) are usual routes.
``Edge`` stands in the place of the middlewares, and checks every request.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from .. import __version__
from ..engine.services import Services
from ..wire.table import DIALECTS
from . import operations
from .access import Access
from .chat_completions import CHAT_PATHS, ChatCompletions
from .edge import App, Edge
from .incoming import BodyMemory
from .passthrough import Passthrough

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_JSON = {"content": {"application/json": {"schema": {"type": "object"}}}, "required": True}
_PASSED_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class ProxyApp(FastAPI):
    """A FastAPI app whose one middleware is ``edge``."""

    def __init__(self, edge: Edge, lifespan: Lifespan) -> None:
        super().__init__(
            title="mlx-stack reliability proxy",
            version=__version__,
            lifespan=lifespan,
            docs_url=None,
            redoc_url=None,
        )
        self.edge = edge

    def build_middleware_stack(self) -> App:
        self.edge.others = super().build_middleware_stack()
        return self.edge


class DataRoute(APIRoute):
    """A route with a raw ASGI ``endpoint``. ``described``: documents it in ``/openapi.json``."""

    def __init__(self, path: str, endpoint: App, described: Callable[..., Any], **kw: Any) -> None:
        super().__init__(path, described, name=described.__name__.strip("_"), **kw)
        self.app = endpoint


def build(services: Services, lifespan: Lifespan) -> ProxyApp:
    """Build the app with all its routes."""
    access = Access(services.settings)
    bodies = BodyMemory(services.settings.server)
    passthrough = Passthrough(services, access, bodies)
    chat = ChatCompletions(services, access, bodies, passthrough.handle)
    edge = Edge(services, access)
    app = ProxyApp(edge, lifespan)

    def add(path: str, handler: Any, described: Callable[..., Any]) -> None:
        extra = {"requestBody": _JSON}
        endpoint = edge.data_path(path, handler)
        route = DataRoute(path, endpoint, described, methods=["POST"], openapi_extra=extra)
        app.router.routes.append(route)

    for path in CHAT_PATHS:
        add(path, chat.handle, _chat_completion)
    for dialect in DIALECTS:
        for path in sorted(dialect.paths):
            add(path, partial(chat.handle, dialect=dialect), _DESCRIBED[dialect.name])
        for path in sorted(dialect.count_paths):
            add(path, partial(chat.count, dialect=dialect), _count)
    operations.add_to(app, services, access)
    other_paths = edge.other_paths(passthrough.handle)
    for method in _PASSED_METHODS:
        app.router.routes.append(
            DataRoute("/v1/{path:path}", other_paths, _passed_on, methods=[method])
        )
    return app


async def _chat_completion() -> None:
    """Answer an OpenAI chat completion, whole or as a stream."""


async def _message() -> None:
    """Answer a request of Anthropic's Messages API, whole or as a stream."""


async def _response() -> None:
    """Answer a request of OpenAI's Responses API, whole or as a stream."""


async def _count() -> None:
    """Count a prompt's tokens."""


async def _passed_on(path: str) -> None:
    """Pass a request on to LiteLLM, and its reply back."""


_DESCRIBED = {"messages": _message, "responses": _response}
