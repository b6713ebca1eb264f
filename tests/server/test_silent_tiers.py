"""A tier that says nothing while its server answers: its model may hang, or read a long prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mlx_stack_proxy.engine import deadlines
from mlx_stack_proxy.engine.decisions import Decisions
from tests.faults.catalogue import DONE, good
from tests.server.asking import ask
from tests.server.climbing import asked, by_model, three_tiers
from tests.server.conftest import StartProxy
from tests.server.polling import is_degraded
from tests.support.replies import chunk, data, text_chunks
from tests.support.scripted_server import SILENCE, Delay, Reply, ScriptedServer, Wait

HANGS = Reply.sse(SILENCE)
SECOND = {"exchange_timeout": 1.0}


@pytest.fixture(autouse=True)
def half_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may look later than in the tenth of a second that a tenth would be here."""
    monkeypatch.setattr(deadlines, "GUESS_SHARE", 0.5)


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


@pytest.mark.parametrize("stream", [False, True])
async def test_one_that_hangs_is_left_in_time(
    upstream: ScriptedServer, start_proxy: StartProxy, health: ScriptedServer, stream: bool
) -> None:
    proxy = await three_tiers(
        upstream, start_proxy, silent(health, "fast"), degrade={"failures": 1}, **SECOND
    )
    thinks = data(chunk({"role": "assistant", "reasoning_content": "Hmm"}))
    upstream.always(by_model(fast=Reply.sse(thinks, SILENCE) if stream else HANGS))
    async with asyncio.timeout(30):  # its total_timeout is 900 s
        response = await ask(proxy, stream=stream)
    assert health.calls, "it was asked, and answered"
    assert response.status_code == 200 and "error" not in response.text
    assert asked(upstream) == ["fast", "standard"]
    assert await is_degraded(proxy)


async def test_after_text_it_is_waited_for(
    upstream: ScriptedServer, start_proxy: StartProxy, health: ScriptedServer
) -> None:
    proxy = await three_tiers(upstream, start_proxy, silent(health, "fast"), **SECOND)
    first, second, *rest = [data(one) for one in text_chunks("This has gone out.")]
    upstream.always(by_model(fast=Reply.sse(first, second, Delay(1.5), *rest, DONE)))
    response = await ask(proxy, stream=True)
    assert "error" not in response.text
    assert asked(upstream) == ["fast"]


async def test_it_is_not_left_for_a_queue_but_when_there_is_room_again(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    health: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = asyncio.Event()
    found = []
    look = Decisions.leaves_silent

    def seen(*given: Any) -> bool:
        found.append(look(*given))
        gate.set()
        return found[-1]

    monkeypatch.setattr(Decisions, "leaves_silent", seen)
    busy = Reply.sse(Wait(gate), *good(False).pieces)
    places = {f"tiers.{tier}.max_concurrency": 1 for tier in ("standard", "longctx")}
    proxy = await three_tiers(
        upstream, start_proxy, silent(health, "fast", **places), exchange_timeout=2.0
    )
    upstream.always(by_model(fast=HANGS, standard=busy, longctx=busy))
    others = [asyncio.create_task(ask(proxy, model=tier)) for tier in ("standard", "longctx")]
    for _ in others:
        await upstream.next_call()
    async with asyncio.timeout(30):
        response = await ask(proxy)
    assert response.headers["x-mlx-stack-escalation-reason"] == "timeout"
    assert found[0] is False and found[-1] is True
    assert {one.status_code for one in await asyncio.gather(*others)} == {200}
