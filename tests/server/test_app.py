"""The FastAPI app: which paths are its routes, and that streams pay nothing for it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from fastapi import FastAPI

from mlx_stack_proxy.main import create_app
from mlx_stack_proxy.server.app import DataRoute
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.wire.table import BY_COUNT_PATH, BY_PATH
from tests.support.running_proxy import RunningProxy

ANSWERED = {"/v1/chat/completions", *BY_PATH, *BY_COUNT_PATH}


def app() -> Any:
    return create_app(from_mapping({"state": {"backend": "memory"}}))


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


async def test_each_route_is_where_its_requests_go() -> None:
    """Straight to its raw endpoint, with the server's own ``send``: no chunk is wrapped."""
    routes = {route.path: route for route in app().routes if isinstance(route, DataRoute)}
    assert routes.keys() >= ANSWERED
    for path, route in routes.items():
        whole = app()
        asked: list[Any] = []

        async def endpoint(scope: Any, receive: Any, send: Any, asked: list[Any] = asked) -> None:
            asked.append((receive, send))

        concrete = path.replace("{path:path}", "batches")
        by_path = {one.path: one for one in whole.routes if isinstance(one, DataRoute)}
        edge = whole.edge
        assert by_path[path].app in (*edge.endpoints.values(), edge.passed_on)
        if path in edge.endpoints:
            edge.endpoints[path] = endpoint
        else:
            edge.passed_on = endpoint
        scope = {"type": "http", "method": "POST", "path": concrete, "headers": []}
        receive, send = object(), object()
        await whole(scope, receive, send)
        assert asked == [(receive, send)]
        assert route.methods
