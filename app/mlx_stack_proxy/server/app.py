"""The FastAPI app that uvicorn serves: all of the proxy's paths.

``Edge`` stands in the place of the middlewares, and checks every request. It has the paths that
models answer: a usual route costs 0.17 ms, half as much as the rest of a request, and its
middlewares wrap each chunk of a stream. Their routes are only listed here. The operator's paths
(``operations.py``, ``admin.py``, ``web_page.py``) are usual routes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

from fastapi import FastAPI

from .. import __version__
from ..driver.services import Services
from ..wire.table import DIALECTS
from . import operations
from .access import Access
from .chat_completions import CHAT_PATHS, ChatCompletions
from .edge import App, Edge, Handler
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


def build(services: Services, lifespan: Lifespan) -> ProxyApp:
    """Build the app with all its routes."""
    access = Access(services.settings)
    bodies = BodyMemory(services.settings.server)
    passthrough = Passthrough(services, access, bodies)
    chat = ChatCompletions(services, access, bodies, passthrough.handle)
    handlers: dict[str, Handler] = dict.fromkeys(CHAT_PATHS, chat.handle)
    described = dict.fromkeys(CHAT_PATHS, _chat_completion)
    for dialect in DIALECTS:
        handlers |= dict.fromkeys(dialect.paths, partial(chat.handle, dialect=dialect))
        handlers |= dict.fromkeys(dialect.count_paths, partial(chat.count, dialect=dialect))
        described |= dict.fromkeys(sorted(dialect.paths), _DESCRIBED[dialect.name])
        described |= dict.fromkeys(sorted(dialect.count_paths), _count)
    app = ProxyApp(Edge(services, access, handlers, passthrough.handle), lifespan)
    for path, description in described.items():
        app.post(path, openapi_extra={"requestBody": _JSON})(description)
    operations.add_to(app, services, access)
    for method in _PASSED_METHODS:
        app.api_route("/v1/{path:path}", methods=[method])(_passed_on)
    return app


# The edge calls none of these: they are what /openapi.json says.


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
