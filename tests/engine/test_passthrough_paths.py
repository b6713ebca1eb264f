"""Which paths clients may call with the proxy's key, and which are refused to everyone."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.engine.passthrough_paths import AllowedPaths, check, serves_models
from mlx_stack_proxy.errors import ProxyError


@pytest.mark.parametrize(
    ("asked", "may"),
    [
        ("POST /v1/embeddings", True),
        ("POST /v1/messages/count_tokens", True),
        ("POST /v1/audio/transcriptions", True),
        ("POST /v1/images/edits", True),
        ("GET /v1/embeddings", False),
        ("POST /v1/Embeddings", False),
        ("POST /v1/embeddings/", False),
        ("POST /v1/embeddings2", False),
        ("POST /v1/audio/a/b", False),
        ("POST /v1/audio/", False),
        ("POST /v1/audio/a%2fb", False),
        ("POST /v1/mcp/server", False),
        ("POST /v1/responses/resp_1", False),
        ("PUT /v1/responses", False),
    ],
)
def test_what_serves_models(asked: str, may: bool) -> None:
    method, _, path = asked.partition(" ")
    assert serves_models(method, path) == may
    assert AllowedPaths(()).has(method, path) == may


def test_what_the_operator_opens() -> None:
    paths = AllowedPaths(("GET /v1/files", "GET /v1/files/{id}/content", "POST /v1/a.b"))
    assert paths.has("GET", "/v1/files")
    assert paths.has("GET", "/v1/files/file-1/content")
    assert not paths.has("POST", "/v1/files")
    assert not paths.has("GET", "/v1/files/file-1")
    assert not paths.has("GET", "/v1/files/a/b/content")
    assert not paths.has("GET", "/v1/files/%2e%2e/content")
    assert paths.has("POST", "/v1/a.b") and not paths.has("POST", "/v1/axb")
    assert not serves_models("GET", "/v1/files")


@pytest.mark.parametrize("path", ["/v1/a%2Fb", "/v1/a%2fb", "/v1/a%5Cb", "/v1//a", "/v1/a//"])
def test_what_two_servers_could_read_differently_is_refused(path: str) -> None:
    with pytest.raises(ProxyError):
        check(path)


def test_a_query_may_hold_anything() -> None:
    check("/v1/files?after=a//b%2Fc")
