"""Who may ask, with which key, from where; and what the response headers say."""

from __future__ import annotations

import json

import pytest

from tests.server.asking import CHAT, ask, body, checked_error
from tests.server.conftest import StartProxy
from tests.server.sockets import raw_answer, request
from tests.support.replies import litellm_error, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import ScriptedServer

ALWAYS = ("request-id", "tier", "retries", "attempts", "session")
both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture(autouse=True)
def upstream_is_well(upstream: ScriptedServer) -> None:
    upstream.always(text_stream())


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@both
async def test_what_is_always_said(streamed: bool, proxy: RunningProxy) -> None:
    proxy.upstream.will(text_stream().with_headers(("x-litellm-call-id", "c-1")))
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
async def test_nothing_foreign_comes_back(streamed: bool, proxy: RunningProxy) -> None:
    foreign = {
        "set-cookie": "a=1",
        "x-litellm-model-api-base": "http://10.0.0.7:9000",
        "llm_provider-api-base": "http://10.0.0.7:9000",
        "llm_provider-x": "a\x7fb",  # no header may hold that
        "x-mlx-stack-loop": "circuit_break;detector=foreign",
        "access-control-allow-origin": "*",
    }
    headers = [*foreign.items(), ("x-request-id", "theirs"), ("server", "theirs")]
    headers.append(("x-good", "caf\xe9"))
    proxy.upstream.will(
        *(one.with_headers(*headers) for one in (text_stream(), litellm_error(400, "no")))
    )
    for status in (200, 400):
        response = await ask(proxy, stream=streamed)
        assert response.status_code == status
        assert not set(foreign) & set(response.headers)
        assert response.headers["x-good"] == "caf\xe9"
        assert response.headers["x-request-id"] != "theirs"
        assert len(response.headers.get_list("content-type")) == 1
        assert len(response.headers.get_list("content-length")) <= 1


async def test_a_named_session_is_hashed(proxy: RunningProxy) -> None:
    first = await ask(proxy, {"X-MLX-Stack-Session": "agent-run-0042"})
    again = await ask(proxy, {"X-MLX-Stack-Session": "agent-run-0042"}, temperature=1)
    other = await ask(proxy, {"X-MLX-Stack-Session": "agent-run-0043"})
    said = first.headers["x-mlx-stack-session"]
    assert "agent-run" not in said
    assert said == again.headers["x-mlx-stack-session"] != other.headers["x-mlx-stack-session"]


async def test_without_api_keys_the_clients_own_goes_on(
    start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-ours")
    proxy = await start_proxy()
    await ask(proxy, bearer("sk-mine"))
    await ask(proxy)
    await proxy.client.post("/v1/embeddings", json={}, headers=bearer("sk-mine"))
    await proxy.client.post("/v1/embeddings", json={})
    found = [call.header("authorization") for call in proxy.upstream.calls]
    assert found == ["Bearer sk-mine", "Bearer sk-ours"] * 2


async def test_without_any_key_none_is_sent_and_no_packed_stream_is_asked_for(
    proxy: RunningProxy,
) -> None:
    await ask(proxy, {"Accept-Encoding": "br, gzip"})
    assert proxy.upstream.calls[0].header("authorization") is None
    assert proxy.upstream.calls[0].header("accept-encoding") in (None, "identity")


WRONG_KEYS = ["", "Bearer key-three", "Bearer key-on", "Bearer sk-ours", "key-one", "Basic key-one",
              "Bearer", "Bearer clé", "Bearer *"]  # fmt: skip


async def test_with_api_keys_only_they_are_let_in(
    start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-ours")
    proxy = await start_proxy({"server.api_keys": ["key-one", "key-two"]})
    paths = [("POST", CHAT), ("POST", "/chat/completions"), ("POST", "/v1/embeddings")]
    for method, path in (*paths, ("GET", "/v1/models")):
        for given in WRONG_KEYS:
            headers = {"Authorization": given.encode()} if given else {}
            response = await proxy.client.request(method, path, json=body(), headers=headers)
            checked_error(response, 401, "invalid_request_error")
            assert "key-one" not in response.text
        assert proxy.upstream.calls == []
        for key in ("key-one", "key-two"):
            response = await proxy.client.request(method, path, json=body(), headers=bearer(key))
            assert response.status_code == 200
        assert {call.header("authorization") for call in proxy.upstream.calls} <= {"Bearer sk-ours"}
        proxy.upstream.calls.clear()


async def test_each_api_key_has_sessions_of_its_own(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"server.api_keys": ["key-one", "key-two"]})
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


BINDS = pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
FOREIGN = (
    "evil.example",
    "evil.example.",
    "127.0.0.1.evil.example",
    "local.evil.example",
    "[::1].evil.example",
    "0x7f.1",
    "a.xlocal",
)
PRIVATE = (
    *("127.0.0.1", "localhost", "[::1]", "LOCALHOST", "localhost.", "192.168.7.7", "[fe80::1]"),
    *("proxy", "mac.local", "host.docker.internal", "proxy.ns.svc", "proxy.ns.svc.cluster.local"),
    *("box.lan", "box.home.arpa"),
)


@BINDS
async def test_a_name_that_a_page_may_have_is_refused(bind: str, start_proxy: StartProxy) -> None:
    """A page of evil.example whose name was pointed at 127.0.0.1 has this Host."""
    proxy = await start_proxy({"server.host": bind})
    for path in (CHAT, "/v1/models", "/v1/files", "/mlx-stack/status", "/metrics", "/"):
        for host in ("evil.example", f"evil.example:{proxy.port}", "127.0.0.1.evil.example"):
            assert await raw_status(proxy, path, host) == 403
    for host in FOREIGN:
        assert await raw_status(proxy, CHAT, host) == 403, host
    assert proxy.upstream.calls == []


@BINDS
async def test_addresses_and_private_names_are_let_in(bind: str, start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"server.host": bind})
    for name in PRIVATE:
        assert await raw_status(proxy, CHAT, f"{name}:{proxy.port}") == 200, name
        assert await raw_status(proxy, CHAT, name) == 200, name


async def test_probes_may_use_any_name(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"server.host": "0.0.0.0"})
    for path in ("/health", "/ready"):
        assert await raw_status(proxy, path, "proxy.example.com") == 200


async def test_the_operator_may_allow_a_name(start_proxy: StartProxy) -> None:
    hosts = ["LLM.example.com", "*.example.org"]
    proxy = await start_proxy({"server.host": "0.0.0.0", "server.allowed_hosts": hosts})
    for host in ("llm.example.com", "LLM.Example.com:443", "a.example.org", "a.b.example.org"):
        assert await raw_status(proxy, CHAT, host) == 200, host
    for host in ("example.com", "a.llm.example.com", "example.org", "aexample.org"):
        assert await raw_status(proxy, CHAT, host) == 403, host


async def test_where_a_key_is_asked_for_the_name_is_free(start_proxy: StartProxy) -> None:
    """A page has no key, under whatever name."""
    proxy = await start_proxy({"server.api_keys": ["k"], "server.admin_key": "a"})
    named = {"host": "llm.example.com"}
    assert (await ask(proxy, named)).status_code == 401
    assert (await ask(proxy, {**named, **bearer("k")})).status_code == 200
    assert (await proxy.client.get("/mlx-stack/status", headers=named)).status_code == 401
    assert (await proxy.client.get("/mlx-stack/", headers=named)).status_code == 200
    assert len(proxy.upstream.calls) == 1


async def test_a_browser_is_never_allowed_across_origins(proxy: RunningProxy) -> None:
    origin = {"Origin": "https://evil.example"}
    asking = {**origin, "Access-Control-Request-Method": "POST"}
    for response in (
        await proxy.client.options(CHAT, headers=asking),
        await ask(proxy, origin),
        await proxy.client.get("/v1/models", headers=origin),
        await proxy.client.get("/health", headers=origin),
    ):
        assert not [name for name in response.headers if name.startswith("access-control-")]


@both
async def test_any_model_name_can_be_answered(streamed: bool, start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"reliability.escalation.unknown_models": "passthrough"})
    proxy.upstream.always(text_stream("fine"))
    for model in ("a\r\nset-cookie: b=c", "a\0b", "m" * 512, "mödel €"):
        response = await ask(proxy, model=model, stream=streamed)
        assert response.status_code == 200
        assert "set-cookie" not in response.headers
        assert len(response.headers["x-mlx-stack-tier"]) <= 512
        assert (await proxy.upstream.next_call()).json()["model"] == model
