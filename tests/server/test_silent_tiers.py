"""A tier that says nothing while its server answers: its model may hang, or read a long prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mlx_stack_proxy.engine import timers
from mlx_stack_proxy.engine.decisions import Decisions
from tests.faults.catalogue import DONE, good
from tests.faults.clients import TOOLS
from tests.server.asking import ask
from tests.server.calling import calling
from tests.server.climbing import DEAD, asked, by_model, three_tiers
from tests.server.conftest import StartProxy
from tests.server.polling import is_degraded
from tests.support.replies import chunk, data, text_chunks
from tests.support.scripted_server import SILENCE, Delay, Reply, ScriptedServer, Wait

HANGS = Reply.sse(SILENCE)
LATE = Reply.sse(Delay(1.5), *good(False).pieces)  # beyond the second that an exchange has here
SECOND = {"exchange_timeout": 1.0}


@pytest.fixture
async def health() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        server.always(Reply.json(b"{}"))
        yield server


def silent(health: ScriptedServer, *tiers: str, **more: Any) -> dict[str, Any]:
    """Tiers whose silence is settled by asking a server that answers."""
    changes = dict(more)
    for tier in tiers:
        for key in ("first_token_timeout", "idle_timeout", "tool_silence_timeout"):
            changes[f"tiers.{tier}.{key}"] = 0.1
        changes[f"tiers.{tier}.health_url"] = f"{health.url}/alive"
    return changes


async def test_one_that_hangs_is_left_in_time(
    upstream: ScriptedServer, start_proxy: StartProxy, health: ScriptedServer
) -> None:
    proxy = await three_tiers(
        upstream, start_proxy, silent(health, "fast"), degrade={"failures": 1}, **SECOND
    )
    upstream.always(by_model(fast=HANGS))
    async with asyncio.timeout(30):  # its total_timeout is 900 s
        response = await ask(proxy)
    assert health.calls, "it was asked, and answered"
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-tier"] == "standard"
    assert response.headers["x-mlx-stack-escalation-reason"] == "timeout"
    assert await is_degraded(proxy)


async def test_a_clients_own_patience_counts(
    upstream: ScriptedServer, start_proxy: StartProxy, health: ScriptedServer
) -> None:
    proxy = await three_tiers(upstream, start_proxy, silent(health, "fast"))
    upstream.always(by_model(fast=HANGS))
    async with asyncio.timeout(30):
        response = await ask(proxy, {"x-stainless-read-timeout": "2"})
    assert response.headers["x-mlx-stack-tier"] == "standard"


async def test_reasoning_that_has_gone_out_keeps_nobody(
    upstream: ScriptedServer, start_proxy: StartProxy, health: ScriptedServer
) -> None:
    proxy = await three_tiers(upstream, start_proxy, silent(health, "fast"), **SECOND)
    thinks = data(chunk({"role": "assistant", "reasoning_content": "Hmm"}))
    upstream.always(by_model(fast=Reply.sse(thinks, SILENCE)))
    async with asyncio.timeout(30):
        response = await ask(proxy, stream=True)
    assert "error" not in response.text
    assert asked(upstream) == ["fast", "standard"]


async def test_after_text_it_is_waited_for(
    upstream: ScriptedServer, start_proxy: StartProxy, health: ScriptedServer
) -> None:
    proxy = await three_tiers(upstream, start_proxy, silent(health, "fast"), **SECOND)
    first, second, *rest = [data(one) for one in text_chunks("This has gone out.")]
    upstream.always(by_model(fast=Reply.sse(first, second, Delay(1.5), *rest, DONE)))
    response = await ask(proxy, stream=True)
    assert "error" not in response.text
    assert asked(upstream) == ["fast"]


async def test_where_nobody_else_is_it_is_waited_for(
    upstream: ScriptedServer, start_proxy: StartProxy, health: ScriptedServer
) -> None:
    proxy = await three_tiers(upstream, start_proxy, silent(health, "longctx"), **SECOND)
    upstream.always(LATE)
    response = await ask(proxy, model="longctx")
    assert len(health.calls) > 1
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-attempts"] == "1"


async def test_it_is_not_left_for_one_that_is_degraded(
    upstream: ScriptedServer, start_proxy: StartProxy, health: ScriptedServer
) -> None:
    proxy = await three_tiers(
        upstream, start_proxy, silent(health, "fast"), degrade={"failures": 1}, **SECOND
    )
    upstream.always(by_model(fast=LATE, standard=DEAD, longctx=DEAD))
    for tier in ("longctx", "standard"):
        assert (await ask(proxy, model=tier)).status_code == 502
    response = await ask(proxy)
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-tier"] == "fast"


def one_place_each(gate: asyncio.Event, first: Reply) -> tuple[dict[str, Any], Any]:
    """Settings, and what upstream says: `standard` and `longctx` are busy until ``gate``."""
    busy = Reply.sse(Wait(gate), *good(False).pieces)
    places = {f"tiers.{tier}.max_concurrency": 1 for tier in ("standard", "longctx")}
    return places, by_model(fast=first, standard=busy, longctx=busy)


async def test_nor_for_a_queue(
    upstream: ScriptedServer, start_proxy: StartProxy, health: ScriptedServer
) -> None:
    gate = asyncio.Event()
    places, replies = one_place_each(gate, LATE)
    proxy = await three_tiers(upstream, start_proxy, silent(health, "fast", **places), **SECOND)
    upstream.always(replies)
    others = [asyncio.create_task(ask(proxy, model=tier)) for tier in ("standard", "longctx")]
    for _ in others:
        await upstream.next_call()
    response = await ask(proxy)
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-tier"] == "fast"
    gate.set()
    assert {one.status_code for one in await asyncio.gather(*others)} == {200}


async def test_but_when_there_is_room_again(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    health: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = asyncio.Event()
    found = []
    look = Decisions.ends_silent_call

    def seen(*given: Any) -> bool:
        found.append(look(*given))
        gate.set()
        return found[-1]

    monkeypatch.setattr(Decisions, "ends_silent_call", seen)
    monkeypatch.setattr(timers, "LOOK_AGAIN_SECONDS", 0.05)
    places, replies = one_place_each(gate, HANGS)
    proxy = await three_tiers(
        upstream, start_proxy, silent(health, "fast", **places), exchange_timeout=4.0
    )
    upstream.always(replies)
    others = [asyncio.create_task(ask(proxy, model=tier)) for tier in ("standard", "longctx")]
    for _ in others:
        await upstream.next_call()
    async with asyncio.timeout(30):
        response = await ask(proxy)
    assert response.headers["x-mlx-stack-escalation-reason"] == "timeout"
    assert found[0] is False and found[-1] is True
    assert {one.status_code for one in await asyncio.gather(*others)} == {200}


async def test_a_doubted_reply_goes_out_when_its_retry_hangs(
    upstream: ScriptedServer, start_proxy: StartProxy, health: ScriptedServer
) -> None:
    changes = silent(health, "longctx", **{"reliability.tool_validation.max_retries": 1})
    proxy = await three_tiers(upstream, start_proxy, changes, **SECOND)
    upstream.will(calling('{"query": ""}'), HANGS)
    async with asyncio.timeout(30):
        response = await ask(proxy, model="longctx", tools=TOOLS)
    (called,) = response.json()["choices"][0]["message"]["tool_calls"]
    assert called["function"]["arguments"] == '{"query": ""}'
    assert asked(upstream) == ["longctx", "longctx"]


async def test_the_silence_of_litellm_is_not_the_tiers(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    health: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Three of them end after the exchange's time.
    monkeypatch.setattr(timers, "HEALTH_SECONDS", 0.4)
    proxy = await three_tiers(
        upstream, start_proxy, silent(health, "fast"), degrade={"failures": 1}, **SECOND
    )
    upstream.routes["GET", "/health/liveliness"] = Reply.raw(SILENCE)
    upstream.always(by_model(fast=HANGS))
    async with asyncio.timeout(30):
        assert (await ask(proxy)).status_code in (200, 504)
    assert not await is_degraded(proxy)
