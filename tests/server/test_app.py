"""The FastAPI app: which paths are its routes, and that streams pay nothing for it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from fastapi import FastAPI

from mlx_stack_proxy.main import build_app, build_services
from mlx_stack_proxy.server.chat_completions import ChatCompletions
from mlx_stack_proxy.server.passthrough import Passthrough
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.wire.table import BY_COUNT_PATH, BY_PATH
from tests.support.running_proxy import RunningProxy

ANSWERED = {"/v1/chat/completions", *BY_PATH, *BY_COUNT_PATH}


def app() -> Any:
    return build_app(build_services(from_mapping({"state": {"backend": "memory"}})))


@pytest.mark.specification(177)
async def test_the_paths_that_models_answer_are_routes_of_the_app(proxy: RunningProxy) -> None:
    """The proxy is a FastAPI app, and uvicorn serves that."""
    assert isinstance(proxy.server.config.loaded_app, FastAPI)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = (await proxy.client.get("/openapi.json")).json()["paths"]
    assert paths.keys() >= {*ANSWERED, "/v1/{path}", "/v1/models", "/health", "/mlx-stack/status"}
    for path in ANSWERED:
        assert list(paths[path]) == ["post"]
        assert paths[path]["post"]["description"]


@pytest.mark.parametrize("path", [*sorted(ANSWERED), "/v1/batches"])
async def test_a_handler_gets_the_servers_own_send(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the router and its middlewares: no chunk is wrapped."""
    asked: list[Any] = []

    async def handle(request: Any, **_: Any) -> None:
        asked.append((request.receive, request.downstream.send))

    for kind, name in (
        (ChatCompletions, "handle"),
        (Passthrough, "handle"),
    ):
        monkeypatch.setattr(kind, name, staticmethod(handle))
    headers = [(b"host", b"127.0.0.1")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    scope |= {"raw_path": path.encode(), "query_string": b"", "http_version": "1.1"}
    receive, send = object(), object()
    await app()(scope, receive, send)
    assert asked == [(receive, send)]
