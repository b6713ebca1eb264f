"""`/mlx-stack/report`: what stands there is what has happened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.asking import CHAT, ask, body
from tests.server.calling import BAD, GOOD, TOOLS, calling
from tests.server.conftest import StartProxy
from tests.server.failing import SETTINGS
from tests.support.clock import Clock
from tests.support.replies import data, litellm_error, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait
from tests.support.waiting import until

Json = dict[str, Any]


async def report(proxy: RunningProxy, **query: Any) -> Json:
    response = await proxy.client.get("/mlx-stack/report", params=query)
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def named(agent: str) -> Json:
    return {"headers": {"X-MLX-Stack-Agent": agent}}


async def test_what_has_happened(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    proxy = await start_proxy(SETTINGS)
    upstream.will(text_stream())
    await ask(proxy, **named("a"))
    upstream.will(calling(BAD), calling(GOOD))
    await ask(proxy, tools=TOOLS, **named("a"))
    upstream.will(calling('{"query": "quokka",}'))
    await ask(proxy, tools=TOOLS, **named("b"))
    upstream.will(litellm_error(400, "what?"))
    await ask(proxy, **named("b"))
    found = await report(proxy)
    assert found["agents"] == ["a", "b"]
    totals = found["totals"]
    assert totals["requests"] == 4
    assert {name: totals[name] for name in totals if name in ("turns", "client_errors")} == {
        "turns": 3,
        "client_errors": 1,
    }
    ways = ("right_at_once", "retried_right", "repaired", "escalated_right")
    assert [totals.get(way, 0) for way in ways] == [1, 1, 1, 0]
    assert totals["attempts"] == 5
    assert totals["retries"] == 1
    assert totals["invalid_calls"] == 1
    assert totals["failed:tool_validation_failure"] == 1
    assert totals["tokens_in"] > 0
    assert totals["model_seconds"] > 0
    assert found["by_agent"]["b"]["requests"] == 2
    assert found["by_tier"]["fast"]["requests"] == 4
    [of_b] = (await report(proxy, agent="b"))["hours"]
    assert of_b["counts"] == found["by_agent"]["b"]
    assert of_b["agent"] == "b"


async def test_another_tier_and_an_error(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    proxy = await start_proxy({**SETTINGS, "reliability.escalation.max_retries_before_escalate": 0})
    upstream.will(litellm_error(500, "no"), text_stream())
    await ask(proxy, **named("a"))
    upstream.will(*[litellm_error(500, "no")] * 2)
    await ask(proxy, **named("a"))
    found = await report(proxy)
    fast, standard = found["by_tier"]["fast"], found["by_tier"]["standard"]
    assert fast["left:server_error"] == 2
    assert fast["failed:server_error"] == 2
    assert standard["escalated_right"] == 1
    assert standard["errors:all_tiers_failed"] == 1
    [failed] = found["failures"]
    assert failed["agent"] == "a"
    assert failed["type"] == "all_tiers_failed"
    assert failed["command"].endswith(failed["request_id"])


async def test_a_client_that_left_is_no_turn(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(SETTINGS)
    upstream.will(Reply.sse(*map(data, text_chunks("Hi")[:2]), Wait(asyncio.Event())))
    async with proxy.client.stream("POST", CHAT, json=body(stream=True)) as response:
        await anext(response.aiter_bytes())
    await until(lambda: not proxy.services.exchanges)
    await proxy.services.journal.written()
    found = await report(proxy)
    assert found["totals"]["requests"] == 1
    assert found["totals"]["client_left"] == 1
    assert "turns" not in found["totals"]


async def test_hours_are_told_apart(
    upstream: ScriptedServer, start_proxy: StartProxy, clock: Clock
) -> None:
    proxy = await start_proxy(SETTINGS, wall_clock=clock)
    for _ in range(2):
        upstream.will(text_stream())
        await ask(proxy, **named("a"))
        clock.now += 3600
    found = await report(proxy, since="3h")
    assert [entry["counts"]["requests"] for entry in found["hours"]] == [1, 1]
    assert found["since"] == found["hours"][0]["hour"] - 3600
    assert (await report(proxy, since="20m"))["totals"] == {}


@pytest.mark.parametrize("query", [{"since": "yesterday"}, {"until": "3h", "since": "1h"}])
async def test_what_makes_no_sense_is_refused(proxy: RunningProxy, query: Json) -> None:
    response = await proxy.client.get("/mlx-stack/report", params=query)
    assert response.status_code == 400
    assert "since" in response.json()["error"]["message"]
