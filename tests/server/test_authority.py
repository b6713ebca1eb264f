"""Our key reaches what serves models; without consent nothing reaches beyond this machine."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvicorn

from mlx_stack_proxy import main
from tests.server.asking import ask, checked_error
from tests.server.conftest import StartProxy
from tests.server.counting import hard
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy, listening_socket
from tests.support.scripted_server import Reply, ScriptedServer

OK = Reply.json({"ok": True})
KEYS = {"server.api_keys": ["a-client"]}
CLIENT = {"Authorization": "Bearer a-client"}
LOCAL_AND_CLOUD = {
    "tiers": {
        "fast": {"model": "mlx-fast"},
        "whisper": {"model": "mlx-whisper"},
        "premium": {"model": "gpt", "local": False},
        "here": {"model": "both"},
        "there": {"model": "both", "local": False},
    }
}
NO_CLOUD = {**LOCAL_AND_CLOUD, "reliability.escalation.cloud": False}
OFF = {"X-MLX-Stack-Cloud": "off"}
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def our_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-master")


@pytest.mark.parametrize("keys", [KEYS, {}], ids=["api_keys", "loopback without keys"])
async def test_our_key_opens_no_administration(
    keys: dict[str, Any], start_proxy: StartProxy
) -> None:
    """Which paths it opens: tests/engine/test_passthrough_paths.py."""
    proxy = await start_proxy(keys)
    proxy.upstream.always(OK)
    headers = CLIENT if keys else {}
    for method, path in (("POST", "config/update"), ("GET", "responses/resp_1"), ("POST", "files")):
        response = await proxy.client.request(method, f"/v1/{path}", headers=headers, content=b"{}")
        error = checked_error(response, 404, "invalid_request_error")
        assert "server.passthrough_paths" in error["message"]
    assert proxy.upstream.calls == []
    response = await proxy.client.post("/v1/embeddings", json={"model": "m"}, headers=headers)
    assert response.status_code == 200
    assert [call.header("authorization") for call in proxy.upstream.calls] == ["Bearer sk-master"]


async def test_the_operator_may_open_more(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({**KEYS, "server.passthrough_paths": ["GET /v1/files/{id}"]})
    proxy.upstream.always(OK)
    assert (await proxy.client.get("/v1/files/f-1?x=1", headers=CLIENT)).status_code == 200
    assert proxy.upstream.calls[0].target == "/v1/files/f-1?x=1"
    for path in ("/v1/files", "/v1/files/f-1/content"):
        checked_error(await proxy.client.get(path, headers=CLIENT), 404, "invalid_request_error")
    response = await proxy.client.delete("/v1/files/f-1", headers=CLIENT)
    checked_error(response, 404, "invalid_request_error")


async def test_with_a_clients_own_key_litellm_decides(proxy: RunningProxy) -> None:
    proxy.upstream.always(OK)
    for header in ("authorization", "x-api-key", "x-litellm-api-key", "x-goog-api-key", "api-key"):
        own = {header: "k"}
        response = await proxy.client.post("/v1/batches?x=1", json={"timeout": 9}, headers=own)
        assert response.status_code == 200
        call = proxy.upstream.calls[-1]
        assert (call.target, call.json()) == ("/v1/batches?x=1", {"timeout": 9})
        assert "sk-master" not in str(call.headers)


async def test_with_our_key_what_steers_litellm_is_taken_out(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(KEYS)
    proxy.upstream.always(OK)
    asked = {"model": "m", "input": "x", "top_k": 1, "mock_response": "x", "api_base": "http://x"}
    steering = {"x-litellm-timeout": "60", "x-litellm-tags": "a", "x-litellm-api-key": "sk-other"}
    # LiteLLM takes `model` of the query before the body's.
    path = "/v1/completions?model=gpt"
    await proxy.client.post(path, json=asked, headers={**CLIENT, **steering})
    (call,) = proxy.upstream.calls
    assert call.target == "/v1/completions"
    assert call.json() == {"model": "m", "input": "x", "top_k": 1}
    assert [name for name, _ in call.headers if name.startswith("x-litellm-")] == [
        "x-litellm-call-id"
    ]
    form = {"model": "whisper", "timeout": "60", "api_base": "http://x"}
    files = {"file": ("a.wav", bytes(range(256)))}
    await proxy.client.post("/v1/audio/transcriptions", data=form, files=files, headers=CLIENT)
    body = bytes(proxy.upstream.calls[1].body)
    assert b"api_base" not in body and b"timeout" not in body
    assert b"whisper" in body and bytes(range(256)) in body


async def test_with_our_key_a_body_is_read_or_refused(start_proxy: StartProxy) -> None:
    """As tests/engine/test_passthrough_body.py has it."""
    proxy = await start_proxy(KEYS)
    for body in (b"model=m", b"\x1f\x8b\x08\x00"):
        response = await proxy.client.post("/v1/embeddings", content=body, headers=CLIENT | JSON)
        checked_error(response, 400, "invalid_request_error")
    assert proxy.upstream.calls == []


# The cloud, without consent


@pytest.mark.parametrize("how", ["setting", "header"])
@pytest.mark.parametrize("own", [False, True], ids=["our key", "a key of its own"])
async def test_without_the_cloud_only_a_local_tiers_model_passes(
    how: str, own: bool, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(NO_CLOUD if how == "setting" else LOCAL_AND_CLOUD)
    proxy.upstream.always(OK)
    headers = {**(OFF if how == "header" else {}), **(CLIENT if own else {})}
    for path in ("completions", "embeddings", "rerank"):
        for model in ("gpt", "unknown", "fast", "mlx-fast,gpt", None, ["mlx-fast"]):
            asked = {"input": "x", **({} if model is None else {"model": model})}
            response = await proxy.client.post(f"/v1/{path}", json=asked, headers=headers)
            error = checked_error(response, 403, "invalid_request_error")
            assert error["param"] == "model"
    assert proxy.upstream.calls == []
    asked = {"model": "mlx-fast", "input": "x"}
    assert (await proxy.client.post("/v1/embeddings", json=asked, headers=headers)).is_success


@pytest.fixture
async def local_only(upstream: ScriptedServer, start_proxy: StartProxy) -> RunningProxy:
    upstream.always(OK)
    return await start_proxy(NO_CLOUD)


async def test_no_way_of_naming_it_gets_past(
    upstream: ScriptedServer, local_only: RunningProxy
) -> None:
    """With a key of its own, too."""
    for path, content in (
        ("embeddings", b'{"model": "mlx-fast", "model": "gpt"}'),
        ("embeddings?model=gpt", b'{"model": "gpt"}'),
        ("engines/gpt/embeddings", b'{"model": "mlx-fast"}'),
        ("batches", b'{"model": "mlx-fast", "input_file_id": "f"}'),
        ("embeddings/", b'{"model": "mlx-fast"}'),
        ("embeddings", b'{"model": "both"}'),  # a tier of the cloud has it, too
    ):
        response = await local_only.client.post(
            f"/v1/{path}", content=content, headers=CLIENT | JSON
        )
        checked_error(response, 403, "invalid_request_error")
    assert upstream.calls == []


async def test_without_the_cloud_nothing_leads_litellm_there(
    upstream: ScriptedServer, local_only: RunningProxy
) -> None:
    asked = {"model": "mlx-fast", "input": "x", "fallbacks": ["gpt"]}
    await local_only.client.post("/v1/embeddings?model=gpt", json=asked, headers=CLIENT)
    (call,) = upstream.calls
    assert (call.target, call.json()) == ("/v1/embeddings", {"model": "mlx-fast", "input": "x"})


async def test_a_forms_model_is_read(upstream: ScriptedServer, local_only: RunningProxy) -> None:
    url, files = "/v1/audio/transcriptions", {"file": ("a.wav", b"\x00\x01", "audio/wav")}
    good = await local_only.client.post(url, data={"model": "mlx-whisper"}, files=files)
    assert good.is_success
    for form in ({"model": "gpt"}, {}, {"model": ["mlx-whisper", "gpt"]}):
        response = await local_only.client.post(url, data=form, files=files)
        checked_error(response, 403, "invalid_request_error")
    assert len(upstream.calls) == 1


# Budgets


async def test_a_hard_stop_holds_on_every_path(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(hard(per_hour=5))
    proxy.upstream.will(text_stream())
    await ask(proxy, CLIENT, max_tokens=1)
    proxy.upstream.always(OK)
    for method, path in (
        ("POST", "batches"),
        ("POST", "vector_stores/vs_1/search"),
        ("PUT", "embeddings"),
        ("POST", "anything/count_tokens"),
        ("POST", "cancel"),
    ):
        response = await proxy.client.request(
            method, f"/v1/{path}", json={"model": "m"}, headers=CLIENT
        )
        checked_error(response, 429, "budget_exceeded")
    assert len(proxy.upstream.calls) == 1
    assert (await proxy.client.get("/v1/batches", headers=CLIENT)).is_success


# WebSockets

_HANDSHAKE = (
    "host: 127.0.0.1:{port}\r\nconnection: Upgrade\r\nupgrade: {offer}\r\n"
    "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
PATHS = ["/v1/realtime?model=m", "/v1/chat/completions", "/v1/models", "/mlx-stack/events", "/x"]


async def status_of(port: int, path: str, offer: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    handshake = _HANDSHAKE.format(port=port, offer=offer)
    writer.write(f"GET {path} HTTP/1.1\r\n{handshake}".encode())
    async with asyncio.timeout(10):
        line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def test_a_websocket_is_refused(proxy: RunningProxy) -> None:
    for path in PATHS:
        for offer in ("websocket", "WebSocket", "h2c, websocket"):
            assert await status_of(proxy.port, path, offer) == 400
    assert proxy.upstream.calls == []


async def test_a_websocket_for_responses_is_told_to_use_http(proxy: RunningProxy) -> None:
    """Codex then does at once."""
    for path in ("/v1/responses", "/v1/responses/", "//v1//responses"):
        assert await status_of(proxy.port, path, "websocket") == 426
    reader, writer = await proxy.raw(
        b"GET /v1/responses HTTP/1.1\r\n"
        + _HANDSHAKE.format(port=proxy.port, offer="websocket").encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"\r\nupgrade: HTTP/1.1\r\nconnection: upgrade\r\n" in head
    writer.close()
    assert proxy.upstream.calls == []


@pytest.mark.parametrize(("http", "ws"), [("h11", "auto"), ("httptools", "none")])
async def test_under_another_server_it_is_refused_before_it_is_one(
    http: Any, ws: Any, proxy: RunningProxy
) -> None:
    app = main.build_app(proxy.services)
    config = uvicorn.Config(app, http=http, ws=ws, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    listener: socket.socket
    with listening_socket() as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            for path in PATHS:
                assert await status_of(port, path, "websocket") in (400, 403)
        finally:
            server.should_exit = True
            await serving
    assert proxy.upstream.calls == []
