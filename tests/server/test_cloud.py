"""The cloud: called directly where LiteLLM hasn't got it, within its cap, and never unasked."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.faults.catalogue import good
from tests.faults.clients import ANSWER
from tests.server.asking import ask, checked_error
from tests.server.climbing import DEAD, asked, by_model
from tests.server.conftest import StartProxy
from tests.server.counting import session
from tests.server.polling import until_metric
from tests.server.test_loops_judge import new_call, turn, with_judge
from tests.support.replies import data, litellm_error, text_chunks, usage_chunk
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer

LOCAL = ("fast", "standard")
TWO = {"tiers": {name: {"model": name} for name in LOCAL}}
ESCALATION = "reliability.escalation"
MOST = 1000  # tokens of an hour
NAMED = {"X-MLX-Stack-Tier": "premium"}
DONE = b"data: [DONE]\n\n"


@pytest.fixture
async def cloud() -> Any:
    async with ScriptedServer() as server:
        server.always(good(False))
        yield server


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_KEY", "sk-of-the-cloud")


def fallback(cloud: ScriptedServer, **more: Any) -> dict[str, Any]:
    """Settings of the cloud's own, with a cap of `MOST` unless another is given."""
    address = {"base_url": f"{cloud.url}/api/v1", "api_key_env": "CLOUD_KEY"}
    return {"model": "vendor/large", **address, "max_tokens_per_hour": MOST, **more}


@pytest.fixture
def start(upstream: ScriptedServer, cloud: ScriptedServer, start_proxy: StartProxy) -> StartProxy:
    """Two local tiers, which fail, and one that only the cloud has; no second tries."""
    upstream.models = LOCAL
    upstream.always(DEAD)
    rules = {"max_retries_before_escalate": 0, "degrade": {"failures": 1}, "sticky_seconds": 0}
    chain = {"chain": [*LOCAL, "premium"], "cloud_fallback": fallback(cloud)}

    async def started(**more: Any) -> RunningProxy:
        premium = {"model": "premium", "local": False}
        changes = {"tiers": {**TWO["tiers"], "premium": premium}}
        return await start_proxy({**changes, ESCALATION: {**rules, **chain, **more}})

    return started


@pytest.fixture
def start_two(start: StartProxy, cloud: ScriptedServer, start_proxy: StartProxy) -> StartProxy:
    """The same without the cloud's tier."""

    async def started(**more: Any) -> RunningProxy:
        rules = {"max_retries_before_escalate": 0, "cloud_fallback": fallback(cloud), **more}
        return await start_proxy({**TWO, ESCALATION: rules})

    return started


def costing(tokens: int) -> Reply:
    usage = {
        "prompt_tokens": tokens - 9,
        "completion_tokens": 9,
        "total_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    return Reply.sse(*map(data, text_chunks("Yes.")), data(usage_chunk(usage)), DONE)


async def spend(proxy: RunningProxy, cloud: ScriptedServer, tokens: int = MOST) -> None:
    """Use tokens of the hour, by a request that names the tier itself."""
    cloud.will(costing(tokens))
    response = await ask(proxy, {**NAMED, **session("spender")})
    assert response.headers["x-mlx-stack-tier"] == "premium"
    cloud.calls.clear()


@pytest.fixture
async def proxy(start: StartProxy) -> RunningProxy:
    return await start()


# What goes there


async def test_it_is_called_directly_and_told_nothing_of_the_client(
    cloud: ScriptedServer, proxy: RunningProxy
) -> None:
    secret = {"Authorization": "Bearer sk-the-clients", "X-Title": "secret"}
    response = await ask(proxy, secret, max_tokens=100)
    assert response.json()["choices"][0]["message"]["content"] == ANSWER
    assert response.headers["x-mlx-stack-tier"] == "premium"
    assert response.headers["x-mlx-stack-cloud"] == "true"
    assert asked(proxy.upstream) == ["fast", "standard"]
    (call,) = cloud.calls
    assert call.target == "/api/v1/chat/completions"
    assert call.header("authorization") == "Bearer sk-of-the-cloud"
    sent = call.json()
    assert sent["model"] == "vendor/large"
    assert "num_retries" not in sent and "disable_fallbacks" not in sent
    told = str(call.headers)
    assert "sk-the-clients" not in told and "secret" not in told


@pytest.mark.parametrize("off", ["for all", "for this request"])
async def test_nothing_leaves_where_nothing_may(
    off: str, cloud: ScriptedServer, start: StartProxy
) -> None:
    proxy = await start(cloud=off != "for all")
    proxy.upstream.models = (*LOCAL, "embedder")
    headers = {} if off == "for all" else {"X-MLX-Stack-Cloud": "off"}
    for more, model, status in (
        ({}, "auto", 502),
        ({}, "premium", 400),
        (NAMED, "auto", 400),
        ({}, "embedder", 400),
    ):
        for body in ({}, {"stream": True}, {"n": 2}):
            response = await ask(proxy, {**more, **headers}, model=model, **body)
            assert response.status_code == status
            assert "x-mlx-stack-cloud" not in response.headers
    assert cloud.connections == set() and cloud.calls == []


async def test_litellm_goes_away_and_the_cloud_answers(
    cloud: ScriptedServer, proxy: RunningProxy
) -> None:
    proxy.upstream.always(by_model())
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"
    await proxy.upstream.stop()
    response = await ask(proxy, max_tokens=100)
    assert response.headers["x-mlx-stack-tier"] == "premium"
    assert response.headers["x-mlx-stack-attempts"] == "2"
    await cloud.stop()
    error = checked_error(await ask(proxy, max_tokens=100), 503, "upstream_unavailable")
    assert [one["tier"] for one in error["attempts"]] == ["fast", "premium"]


# The cap


async def test_the_last_failure_of_this_machine_is_what_is_told(
    cloud: ScriptedServer, proxy: RunningProxy
) -> None:
    await spend(proxy, cloud)
    error = checked_error(await ask(proxy, max_tokens=100), 502, "all_tiers_failed")
    assert [one["tier"] for one in error["attempts"]] == ["fast", "standard"]
    assert cloud.calls == []
    found = (await proxy.client.get("/mlx-stack/events", params={"kind": "budget_exceeded"})).json()
    scopes = [event["detail"]["scope"] for event in found["events"]]
    assert "cloud" in scopes, "and why the cloud was not asked is kept"


async def test_only_who_names_it_is_not_held_to_the_cap(
    cloud: ScriptedServer, start: StartProxy
) -> None:
    """LiteLLM lists none of the local models, so every way begins in the cloud."""
    proxy = await start(aliases={"gpt-4o": "premium"})
    proxy.upstream.models = ("another",)
    await spend(proxy, cloud)
    response = await ask(proxy, session("capped"), model="auto", max_tokens=100)
    error = checked_error(response, 429, "budget_exceeded")
    assert (error["scope"], error["limit"]) == ("cloud", MOST)
    assert int(response.headers["retry-after"]) >= 1
    assert cloud.calls == []
    kept = await proxy.services.store.record(response.headers["x-request-id"])
    assert kept is not None
    record = orjson.loads(kept.body)["detail"]
    assert (record["status"], record["budget"]) == (429, "cloud"), "though nothing was attempted"
    for named in ({"model": "premium"}, {"model": "gpt-4o"}, {"headers": NAMED}):
        assert (await ask(proxy, max_tokens=100, **named)).status_code == 200


async def test_each_call_has_to_fit_and_what_fails_costs_nothing(
    cloud: ScriptedServer, start: StartProxy
) -> None:
    """Also a second try on the same tier."""
    proxy = await start(max_retries_before_escalate=1, degrade={"failures": 100})
    long = [{"role": "user", "content": "The quokka sat. " * 150}]  # some 680 tokens
    cloud.will(DEAD, DEAD, litellm_error(429, "slow down"), costing(MOST - 200))
    failed = await ask(proxy, session("one"), messages=long, max_tokens=200)
    checked_error(failed, 502, "all_tiers_failed")
    response = await ask(proxy, session("two"), messages=long, max_tokens=200)
    assert response.headers["x-mlx-stack-tier"] == "premium"
    assert len(cloud.calls) == 4
    checked_error(await ask(proxy, session("three"), max_tokens=500), 502, "all_tiers_failed")
    assert len(cloud.calls) == 4, "500 do not fit any more"
    assert (await ask(proxy, session("four"), max_tokens=50)).status_code == 200


async def test_who_leaves_while_tokens_are_set_aside_gives_them_back(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = proxy.services.store
    reserve, made = store.reserve, asyncio.Event()

    async def slow(ticket: str, limits: Any, *rest: Any, **more: Any) -> Any:
        found = await reserve(ticket, limits, *rest, **more)
        if any(limit.scope == "cloud" for limit in limits):
            made.set()
            await asyncio.Event().wait()
        return found

    monkeypatch.setattr(store, "reserve", slow)
    leaver = asyncio.create_task(ask(proxy, session("leaver"), max_tokens=900))
    async with asyncio.timeout(10):
        await made.wait()
    leaver.cancel()
    await until_metric(proxy, "mlx_stack_requests_total", 1, outcome="client_left")
    monkeypatch.setattr(store, "reserve", reserve)
    response = await ask(proxy, session("next"), max_tokens=900)
    assert (response.status_code, response.headers["x-mlx-stack-tier"]) == (200, "premium")


async def test_who_leaves_in_the_middle_pays_for_what_was_written(
    cloud: ScriptedServer, proxy: RunningProxy
) -> None:
    cloud.will(Reply.sse(data(text_chunks("Half an answer")[1]), SILENCE))
    leaver = asyncio.create_task(ask(proxy, session("leaver"), max_tokens=900))
    await cloud.next_call()
    await until_metric(proxy, "mlx_stack_in_flight", 1, tier="premium")
    leaver.cancel()
    await until_metric(proxy, "mlx_stack_requests_total", 1, outcome="client_left")
    response = await ask(proxy, session("next"), max_tokens=900)
    assert (response.status_code, response.headers["x-mlx-stack-tier"]) == (200, "premium")


async def test_the_log_says_who_may_be_asked(
    capsys: pytest.CaptureFixture[str], proxy: RunningProxy
) -> None:
    said = [line for line in capsys.readouterr().err.splitlines() if '"event":"cloud"' in line]
    assert len(said) == 1
    assert '"provider":"openrouter"' in said[0]
    assert '"model":"vendor/large"' in said[0]
    assert "sk-of-the-cloud" not in said[0]


# As a tier of its own


@pytest.mark.specification(93)
async def test_where_no_tier_is_in_the_cloud_it_ends_the_chain(
    cloud: ScriptedServer, start_two: StartProxy
) -> None:
    """LiteLLM's list says nothing about it."""
    proxy = await start_two()
    proxy.upstream.models = (*LOCAL, "vendor/large")
    for body in ({}, {"stream": True}):
        response = await ask(proxy, max_tokens=100, **body)
        assert response.headers["x-mlx-stack-tier"] == "cloud_fallback"
    assert {call.json()["model"] for call in cloud.calls} == {"vendor/large"}
    assert {call.header("authorization") for call in cloud.calls} == {"Bearer sk-of-the-cloud"}
    cloud.calls.clear()
    checked_error(await ask(proxy, max_tokens=MOST), 502, "all_tiers_failed")
    off = {"X-MLX-Stack-Cloud": "off"}
    checked_error(await ask(proxy, off, max_tokens=100), 502, "all_tiers_failed")
    assert cloud.calls == []


@pytest.mark.specification(97)
@pytest.mark.parametrize("value", [None, "", " "])
async def test_without_its_key_no_prompt_is_posted(
    value: str | None,
    *,
    cloud: ScriptedServer,
    start: StartProxy,
    start_two: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("CLOUD_KEY")
    if value is not None:
        monkeypatch.setenv("CLOUD_KEY", value)
    for make in (start, start_two):
        proxy = await make()
        log = capsys.readouterr().err
        assert '"event":"cloud_without_key"' in log and '"variable":"CLOUD_KEY"' in log
        error = checked_error(await ask(proxy), 502, "all_tiers_failed")
        assert [one["tier"] for one in error["attempts"]] == ["fast", "standard"]
    named = await ask(proxy, model="cloud_fallback")
    assert "CLOUD_KEY" in checked_error(named, 400, "invalid_request_error")["message"]
    assert cloud.connections == set() and cloud.calls == []


async def test_the_judge_passes_the_same_gate(
    upstream: ScriptedServer, cloud: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Consent, the cap and the direct way; without consent: `test_loops_judge.py`."""
    upstream.models = LOCAL
    upstream.otherwise = with_judge(None, new_call)
    cloud.always(costing(MOST - 50))
    judge = {"enabled": True, "tier": "cloud_fallback", "after_turns": 2}
    rules = {
        ESCALATION: {"cloud_fallback": fallback(cloud, max_tokens_per_hour=20_000)},
        "reliability.loop_detection.judge": judge,
    }
    proxy = await start_proxy({**TWO, **rules})
    await turn(proxy, 3)
    await until_metric(proxy, "mlx_stack_judge_questions_total", 1, result="no_answer")
    (question,) = cloud.calls
    assert question.json()["model"] == "vendor/large"
    assert question.header("authorization") == "Bearer sk-of-the-cloud"
    budgets = (await proxy.client.get("/mlx-stack/status")).json()["budgets"]
    assert {one["scope"]: one["used"] for one in budgets}["cloud"] == MOST - 50
