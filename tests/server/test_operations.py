"""Models, health, readiness and metrics."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from tests.server.asking import ask, checked_error
from tests.server.conftest import StartProxy
from tests.server.polling import metric_value
from tests.support.replies import litellm_error, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import RESET, Call, Reply


async def test_models_lists_auto_and_the_tiers_first(proxy: RunningProxy) -> None:
    proxy.upstream.models = ("embedder", "fast", "standard", "whisper")
    response = await proxy.client.get("/v1/models")
    assert response.status_code == 200
    listed = response.json()
    assert listed["object"] == "list"
    names = [model["id"] for model in listed["data"]]
    assert names == ["auto", "fast", "standard", "embedder", "whisper"]
    assert all(model["object"] == "model" for model in listed["data"])
    assert proxy.upstream.calls == []


@pytest.mark.parametrize(
    "answer", [litellm_error(503, "starting"), Reply.raw(RESET)], ids=["503", "reset"]
)
async def test_not_ready_when_litellm_is_not(answer: Reply, proxy: RunningProxy) -> None:
    for path in ("/health/liveliness", "/health/readiness", "/v1/models"):
        proxy.upstream.routes["GET", path] = answer
    assert (await proxy.client.get("/ready")).status_code == 503


async def test_metrics_tell_what_the_process_takes(proxy: RunningProxy) -> None:
    async def now(name: str) -> float:
        return metric_value((await proxy.client.get("/metrics")).text, name) or 0

    assert await now("process_resident_memory_bytes") > 1_000_000
    assert await now("process_start_time_seconds") > 1_700_000_000
    assert await now("process_threads") >= 1
    files, tasks = await now("process_open_fds"), await now("mlx_stack_tasks")
    waiting = asyncio.create_task(asyncio.Event().wait())
    opened = os.open(os.devnull, os.O_RDONLY)
    try:
        assert await now("process_open_fds") == files + 1
        assert await now("mlx_stack_tasks") == tasks + 1
    finally:
        waiting.cancel()
        os.close(opened)


async def test_metrics_have_no_label_that_a_client_makes_up(proxy: RunningProxy) -> None:
    proxy.upstream.always(text_stream())
    await ask(proxy, {"X-MLX-Stack-Session": "session-xyzzy"}, model="model-xyzzy", user="xyzzy")
    await proxy.client.get("/v1/path-xyzzy")
    ours = (await proxy.client.get("/metrics")).text
    assert re.findall(r".*xyzzy.*", ours) == [
        'mlx_stack_agent_requests_total{agent="session-xyzzy",outcome="ok"} 1.0'
    ]
    others = await proxy.client.get("/metrics", headers={"Via": "1.1 nginx"})
    assert "xyzzy" not in others.text and "mlx_stack_requests_total{" in others.text
    assert others.headers["content-type"].startswith("text/plain")


async def test_models_are_not_listed_with_our_key_where_others_can_ask(
    start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-ours")
    proxy = await start_proxy({"server.host": "0.0.0.0"})
    asked: list[str | None] = []
    own_reply = proxy.upstream.own_reply

    def noted(call: Call) -> Reply | None:
        asked.append(call.header("authorization"))
        return own_reply(call)

    monkeypatch.setattr(proxy.upstream, "own_reply", noted)
    await proxy.client.get("/v1/models")
    await proxy.client.get("/v1/models/fast", headers={"Authorization": "Bearer sk-theirs"})
    assert asked == [None, "Bearer sk-theirs"]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/fast"])
async def test_a_list_of_models_that_is_none_is_an_error(path: str, proxy: RunningProxy) -> None:
    proxy.upstream.routes["GET", "/v1/models"] = Reply.json(b"<html>")
    checked_error(await proxy.client.get(path), 502, "all_tiers_failed")
    proxy.upstream.routes["GET", "/v1/models"] = Reply.json(b"<html>", status=502)
    assert (await proxy.client.get(path)).status_code == 502


async def test_models_answers_head(proxy: RunningProxy) -> None:
    response = await proxy.client.head("/v1/models")
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize("path", ["/ready", "/mlx-stack/status"])
async def test_a_fault_of_ours_on_an_operators_path_is_an_error_as_everywhere(
    path: str, proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy.services.upstream, "is_alive", None)
    monkeypatch.setattr(proxy.services.models, "fetch", None)
    response = await proxy.client.get(path)
    checked_error(response, 500, "internal_error")
    assert response.headers["x-mlx-stack-request-id"]
