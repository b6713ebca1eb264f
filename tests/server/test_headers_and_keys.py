"""Who may ask, with which key, from where; and what the response headers say."""

from __future__ import annotations

import json

import pytest

from tests.server.asking import CHAT, ask, body
from tests.server.conftest import StartProxy
from tests.server.sockets import raw_answer, request
from tests.support.replies import litellm_error, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import ScriptedServer

ALWAYS = ("request-id", "tier", "retries", "attempts", "session")
both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@both
async def test_what_is_always_said(
    streamed: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(text_stream().with_headers(("x-litellm-call-id", "c-1")))
    response = await ask(proxy, stream=streamed)
    said = {name: response.headers[f"x-mlx-stack-{name}"] for name in ALWAYS}
    assert (said["tier"], said["retries"], said["attempts"]) == ("fast", "0", "1")
    assert response.headers["x-request-id"] == said["request-id"]
    assert said["session"].startswith("derived;")
    assert len(said["session"].partition(";")[2]) == 12
    assert response.headers["x-litellm-call-id"] == "c-1"
    for only_when in ("escalated-from", "loop", "repairs", "truncated", "budget-warning"):
        assert f"x-mlx-stack-{only_when}" not in response.headers


@both
async def test_nothing_foreign_comes_back(
    streamed: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(
        text_stream().with_headers(
            ("set-cookie", "a=1"),
            ("x-litellm-model-api-base", "http://10.0.0.7:9000"),
            ("llm_provider-api-base", "http://10.0.0.7:9000"),
            ("x-mlx-stack-loop", "circuit_break;detector=foreign"),
            ("x-request-id", "theirs"),
            ("access-control-allow-origin", "*"),
            ("server", "theirs"),
        )
    )
    response = await ask(proxy, stream=streamed)
    for name in ("set-cookie", "x-litellm-model-api-base", "llm_provider-api-base"):
        assert name not in response.headers
    assert "x-mlx-stack-loop" not in response.headers
    assert response.headers["x-request-id"] != "theirs"
    assert "access-control-allow-origin" not in response.headers
    assert len(response.headers.get_list("content-type")) == 1
    assert len(response.headers.get_list("content-length")) <= 1


@both
async def test_a_header_that_none_may_write_breaks_no_reply(
    streamed: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    odd = (("llm_provider-x", "a\x7fb"), ("x-good", "caf\xe9"))
    upstream.will(text_stream().with_headers(*odd))
    response = await ask(proxy, stream=streamed)
    assert response.status_code == 200
    assert "llm_provider-x" not in response.headers
    assert response.headers["x-good"] == "caf\xe9"
    upstream.will(litellm_error(400, "no").with_headers(*odd))
    assert (await ask(proxy, stream=streamed)).status_code == 400


async def test_a_named_session_is_hashed(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    upstream.always(text_stream())
    first = await ask(proxy, {"X-MLX-Stack-Session": "agent-run-0042"})
    again = await ask(proxy, {"X-MLX-Stack-Session": "agent-run-0042"}, temperature=1)
    other = await ask(proxy, {"X-MLX-Stack-Session": "agent-run-0043"})
    said = first.headers["x-mlx-stack-session"]
    assert "agent-run" not in said
    assert said == again.headers["x-mlx-stack-session"] != other.headers["x-mlx-stack-session"]


async def test_without_api_keys_the_clients_own_goes_on(
    upstream: ScriptedServer, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-ours")
    proxy = await start_proxy()
    upstream.always(text_stream())
    await ask(proxy, bearer("sk-mine"))
    await ask(proxy)
    await proxy.client.post("/v1/embeddings", json={}, headers=bearer("sk-mine"))
    await proxy.client.post("/v1/embeddings", json={})
    found = [call.header("authorization") for call in upstream.calls]
    assert found == ["Bearer sk-mine", "Bearer sk-ours"] * 2


async def test_without_any_key_none_is_sent(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    upstream.always(text_stream())
    await ask(proxy)
    assert upstream.calls[0].header("authorization") is None


@pytest.mark.parametrize("path", [CHAT, "/chat/completions", "/v1/embeddings", "/v1/models"])
async def test_with_api_keys_only_they_are_let_in(
    path: str,
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-ours")
    proxy = await start_proxy({"server.api_keys": ["key-one", "key-two"]})
    upstream.always(text_stream())
    method = "GET" if path == "/v1/models" else "POST"
    wrong = [{}, bearer("key-three"), bearer("key-on"), bearer("sk-ours")]
    wrong += [{"Authorization": said} for said in ("key-one", "Basic key-one", "Bearer")]
    wrong += [bearer("clé"), bearer("*")]
    for headers in wrong:
        sent = {name: value.encode() for name, value in headers.items()}
        response = await proxy.client.request(method, path, json=body(), headers=sent)
        assert response.status_code == 401, headers
        error = response.json()["error"]
        assert {"message", "type", "param", "code"} <= set(error)
        assert "key-one" not in response.text
        assert response.headers["x-should-retry"] == "false"
    assert upstream.calls == []
    for key in ("key-one", "key-two"):
        response = await proxy.client.request(method, path, json=body(), headers=bearer(key))
        assert response.status_code == 200
    assert {call.header("authorization") for call in upstream.calls} <= {"Bearer sk-ours"}


async def test_each_api_key_has_sessions_of_its_own(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"server.api_keys": ["key-one", "key-two"]})
    upstream.always(text_stream())
    found = set()
    for key in ("key-one", "key-two"):
        headers = {**bearer(key), "X-MLX-Stack-Session": "the-same-name"}
        found.add((await ask(proxy, headers)).headers["x-mlx-stack-session"])
    assert len(found) == 2


async def raw_status(proxy: RunningProxy, path: str, host: str) -> int:
    content = json.dumps(body()).encode() if path == CHAT else b""
    lines = (f"host: {host}", "connection: close")
    sent = request(path, content, *lines, method="POST" if content else "GET")
    return int((await raw_answer(proxy, sent)).split(b" ")[1])


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/v1/files", "/mlx-stack/status", "/metrics"])
async def test_another_host_name_is_refused_on_a_loopback_bind(
    path: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    """A page of evil.example whose name was pointed at 127.0.0.1 has this Host."""
    upstream.always(text_stream())
    for host in ("evil.example", f"evil.example:{proxy.port}", "127.0.0.1.evil.example"):
        assert 400 <= await raw_status(proxy, path, host) < 500
    assert upstream.calls == []


async def test_our_own_host_names_are_let_in(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    upstream.always(text_stream())
    for name in ("127.0.0.1", "localhost", "[::1]", "LOCALHOST"):
        assert await raw_status(proxy, CHAT, f"{name}:{proxy.port}") == 200
        assert await raw_status(proxy, CHAT, name) == 200


async def test_a_browser_is_never_allowed_across_origins(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.always(text_stream())
    origin = {"Origin": "https://evil.example"}
    asking = {**origin, "Access-Control-Request-Method": "POST"}
    for response in (
        await proxy.client.options(CHAT, headers=asking),
        await ask(proxy, origin),
        await proxy.client.get("/v1/models", headers=origin),
        await proxy.client.get("/health", headers=origin),
    ):
        assert not [name for name in response.headers if name.startswith("access-control-")]


async def test_compression_is_not_asked_for_in_the_clients_name(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    """The proxy has to read the stream, so it may not let upstream pack it."""
    upstream.will(text_stream())
    await ask(proxy, {"Accept-Encoding": "br, gzip"})
    assert upstream.calls[0].header("accept-encoding") in (None, "identity")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", ["a\r\nset-cookie: b=c", "a\0b", "m" * 512, "mödel €"])
async def test_any_model_name_can_be_answered(
    model: str, streamed: bool, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"reliability.escalation.unknown_models": "passthrough"})
    upstream.will(text_stream("fine"))
    response = await ask(proxy, model=model, stream=streamed)
    assert response.status_code == 200
    assert "set-cookie" not in response.headers
    assert len(response.headers["x-mlx-stack-tier"]) <= 512
    assert (await upstream.next_call()).json()["model"] == model
