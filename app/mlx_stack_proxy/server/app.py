"""The FastAPI app that uvicorn serves: all of the proxy's paths.

``Edge`` answers every request, and has the paths that models answer: a usual route costs 0.17 ms,
half as much as the rest of a request, and FastAPI's middlewares wrap each chunk of a stream. Their
routes are only listed here. The operator's paths (``operations.py``, ``admin.py``,
``web_page.py``) are usual routes, to which the edge goes past the middlewares.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware

from .. import __version__
from ..driver.services import Services
from ..engine.downstream import Send
from ..engine.watch import Receive
from ..wire.table import DIALECTS
from . import operations
from .access import Access
from .chat_completions import CHAT_PATHS, ChatCompletions
from .edge import Edge, Scope
from .incoming import Handler
from .passthrough import Passthrough

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

_JSON = {"content": {"application/json": {"schema": {"type": "object"}}}, "required": True}
_PASSED_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_APIS = {"messages": "Anthropic's Messages API", "responses": "OpenAI's Responses API"}


class ProxyApp(FastAPI):
    """A FastAPI app whose requests ``edge`` answers, with FastAPI's router for some of them."""

    edge: Edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # for the router
        if scope["type"] == "http":
            await self.edge.answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            await super().__call__(scope, receive, send)


def build(services: Services, lifespan: Lifespan) -> ProxyApp:
    """Build the app with all its routes."""
    app = ProxyApp(
        title="mlx-stack reliability proxy",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    access = Access(services.settings)
    passthrough = Passthrough(services, access)
    chat = ChatCompletions(services, access, passthrough.handle)
    handlers: dict[str, Handler] = dict.fromkeys(CHAT_PATHS, chat.handle)
    said = dict.fromkeys(CHAT_PATHS, "Answer an OpenAI chat completion, whole or as a stream.")
    for dialect in DIALECTS:
        count = partial(chat.handle, dialect=dialect, counts=True)
        handlers |= dict.fromkeys(dialect.paths, partial(chat.handle, dialect=dialect))
        handlers |= dict.fromkeys(dialect.count_paths, count)
        answers = f"Answer a request of {_APIS[dialect.name]}, whole or as a stream."
        said |= dict.fromkeys(sorted(dialect.paths), answers)
        said |= dict.fromkeys(sorted(dialect.count_paths), "Count a prompt's tokens.")
    for path, words in said.items():
        body = {"requestBody": _JSON}
        app.add_api_route(
            path, _by_the_edge, methods=["POST"], description=words, openapi_extra=body
        )
    operations.add_to(app, services, access)
    for method in _PASSED_METHODS:
        app.api_route("/v1/{path:path}", methods=[method])(_passed_on)
    others = AsyncExitStackMiddleware(app.router)
    app.edge = Edge(services, access, handlers, passthrough.handle, others)
    return app


# The edge calls neither: they are what /openapi.json says.


async def _by_the_edge() -> None:
    """Answer in the way that the route's description says."""


async def _passed_on(path: str) -> None:
    """Pass a request on to LiteLLM, and its reply back."""
