"""Decides what the layer does with each of LiteLLM's routes: guard, count, or ignore.

LiteLLM's own table says which of its routes are for models (``RouteChecks.is_llm_api_route``, which
decides what a virtual key may call). Of those, the paths that mean what the proxy judges are
guarded, under the proxy's own path. All others pass through with their tokens counted, within
budgets and the cloud's rule. What calls no model, such as LiteLLM's administration and its MCP
gateway, is left to LiteLLM. Where LiteLLM is installed, a test compares this with its routes.
"""

from __future__ import annotations

import re
from functools import lru_cache

from litellm.proxy._types import LiteLLMRoutes
from litellm.proxy.auth.route_checks import RouteChecks
from msgspec import Struct

from ..engine import passthrough_paths
from ..engine.upstream import CHAT_PATH
from ..server.edge import is_guarded, is_model_query
from ..server.passthrough import FREE

_OURS = "/mlx-stack/"
_METRICS = f"{_OURS}metrics"  # at /metrics LiteLLM serves its own metrics
_CHANGING = frozenset({"POST", "PUT", "PATCH"})
# Other paths for what the proxy judges. The first pattern's path names the model.
_CHAT_OF_MODEL = re.compile(r"/(?:engines|openai/deployments)/(.+)/chat/completions")
_SPELLINGS = {"/queue/chat/completions": CHAT_PATH, "/openai/v1/responses": "/v1/responses"}
# Routes that call a model although LiteLLM's table lacks them.
_ALSO_MODELS = re.compile(
    r"/prompts/test|/usage/ai/chat|(?:/v1)?/evals(?:/.+)?|/[^/]+/v1/batches(?:/.+)?"
)
# Routes in LiteLLM's table that call no model.
_NO_MODEL = [
    *LiteLLMRoutes.mcp_inference_routes.value,
    *(route for route in LiteLLMRoutes.litellm_native_routes.value if "/rag/" not in route),
    *LiteLLMRoutes.model_info_routes.value,
    "/utils/token_counter",
    "/utils/transform_request",
]
_LONGEST = 256  # characters of a path whose result is cached


class LayerRoute(Struct, frozen=True):
    """Where the layer answers a request."""

    path: str  # the proxy's own path
    model: str = ""  # the model that the client's path names; "": the body names it


def way_of(method: str, path: str) -> LayerRoute | None:
    """Return where the layer answers a request; None: LiteLLM answers it alone."""
    if path == _METRICS:
        return LayerRoute("/metrics")
    if is_guarded(path) or path.startswith(_OURS) or is_model_query(method, path):
        return LayerRoute(path)
    tidy = path.rstrip("/")
    if method == "POST" and (named := _CHAT_OF_MODEL.fullmatch(tidy)):
        return LayerRoute(CHAT_PATH, named[1])
    if method == "POST" and tidy in _SPELLINGS:
        return LayerRoute(_SPELLINGS[tidy])
    if passthrough_paths.serves_models(method, f"/v1{path}"):
        return LayerRoute(f"/v1{path}")
    return LayerRoute(path) if is_counted(method, path) else None


def is_counted(method: str, path: str) -> bool:
    """Whether a request passes through with its tokens counted."""
    if passthrough_paths.serves_models(method, path):
        return True
    return method in _CHANGING and asks_model(path)


def asks_model(path: str) -> bool:
    """Whether a request, or a WebSocket, at a path may call a model."""
    return _asks_model(path) if len(path) > _LONGEST else _known(path)


def _asks_model(path: str) -> bool:
    if _ALSO_MODELS.fullmatch(path) is not None:
        return True
    versioned = path if path.startswith("/v1/") else f"/v1{path}"
    if FREE.fullmatch(versioned) is not None:
        return False
    if RouteChecks.check_route_access(route=path, allowed_routes=_NO_MODEL):
        return False
    return bool(RouteChecks.is_llm_api_route(route=path))


_known = lru_cache(1024)(_asks_model)
