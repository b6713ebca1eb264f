"""Inside LiteLLM no route that asks a model evades the layer: held to the installed LiteLLM."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("litellm.proxy.proxy_server")

from litellm.proxy import proxy_server
from litellm.proxy._lazy_features import LAZY_FEATURES

from mlx_stack_proxy.litellm.routes import LayerRoute, is_counted, way_of
from mlx_stack_proxy.server.passthrough import FREE

CHAT = "/v1/chat/completions"
# How a handler of LiteLLM's asks a model, or has something done that does.
_ASKS = re.compile(
    r"base_process_llm_request|route_request\(|llm_router\.a|litellm\.a(?!pi_|uth)\w+\("
    r"|llm_router\.schedule|schedule_acompletion|pass_through_request\("
)
# Handlers that match, but ask no model for a client.
LEFT_ALONE = {
    *("/health/test_connection", "/cache/settings/test"),  # administration
    "/guardrails/test_custom_code", "/apply_guardrail", "/guardrails/apply_guardrail",
    "/files", "/v1/files", "/moderations",
}  # fmt: skip


def all_routes(found: Any) -> Iterator[tuple[str, str, Any]]:
    """Method, path and handler of every route, those in routers that were included too."""
    for route in found:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from all_routes(inner.routes)
        else:
            for method in getattr(route, "methods", None) or ():
                yield method, route.path, getattr(route, "endpoint", None)


def installed() -> Iterator[tuple[str, str, Any]]:
    yield from all_routes(proxy_server.app.router.routes)
    for feature in LAZY_FEATURES:
        module = importlib.import_module(feature.module_path)
        if (router := getattr(module, "router", None)) is not None:
            yield from all_routes(router.routes)


def test_each_route_that_asks_a_model_is_guarded_or_counted() -> None:
    evading, asking = set(), 0
    for method, path, handler in installed():
        if method not in ("POST", "PUT", "PATCH") or not _ASKS.search(inspect.getsource(handler)):
            continue
        asking += 1
        asked = re.sub(r"\{[^}]*\}", "x", path)
        if way_of(method, asked) is None and path not in LEFT_ALONE and not _free(asked):
            evading.add(path)
    assert asking > 50, "the pattern still finds LiteLLM's handlers"
    assert sorted(evading) == []


def _free(path: str) -> bool:
    return FREE.fullmatch(path if path.startswith("/v1/") else f"/v1{path}") is not None


@pytest.mark.parametrize(
    ("path", "way"),
    [
        (CHAT, LayerRoute(CHAT)),
        ("/engines/fast/chat/completions", LayerRoute(CHAT, "fast")),
        ("/openai/deployments/vertex_ai/x/chat/completions", LayerRoute(CHAT, "vertex_ai/x")),
        ("/queue/chat/completions", LayerRoute(CHAT)),
        ("/openai/v1/responses", LayerRoute("/v1/responses")),
        ("/completions", LayerRoute("/v1/completions")),
        ("/embeddings", LayerRoute("/v1/embeddings")),
        ("/mlx-stack/metrics", LayerRoute("/metrics")),
        ("/key/generate", None),
        ("/mcp/tools/call", None),
        ("/v1/files", None),
    ],
)
def test_where_it_is_answered(path: str, way: LayerRoute | None) -> None:
    assert way_of("POST", path) == way


@pytest.mark.parametrize(
    "path",
    [
        "/engines/fast/completions", "/openai/deployments/fast/completions",
        "/v1beta/models/fast:generateContent", "/models/fast:streamGenerateContent",
        "/interactions", "/v1beta/interactions", "/cursor/chat/completions",
        "/v1/responses/compact", "/openai/v1/responses/compact", "/anthropic/v1/messages",
        "/vertex_ai/v1/x", "/v1/rag/query", "/prompts/test", "/v1/batches", "/" + "x/" * 300,
    ],
)  # fmt: skip
def test_what_is_counted(path: str) -> None:
    counted = "x/x" not in path
    assert is_counted("POST", path) is counted
    assert way_of("POST", path) == (LayerRoute(path) if counted else None)
    assert not is_counted("GET", path)
