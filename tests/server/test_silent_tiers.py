"""A tier that says nothing while its server answers: its model may hang."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mlx_stack_proxy.engine import deadlines
from tests.server.asking import ask
from tests.server.climbing import asked, by_model
from tests.server.conftest import StartProxy
from tests.server.polling import is_degraded
from tests.support.replies import chunk, data
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer

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
    health: ScriptedServer, stream: bool, three_tiers: StartProxy
) -> None:
    proxy = await three_tiers(silent(health, "fast"), degrade={"failures": 1}, **SECOND)
    thinks = data(chunk({"role": "assistant", "reasoning_content": "Hmm"}))
    proxy.upstream.always(by_model(fast=Reply.sse(thinks, SILENCE) if stream else HANGS))
    async with asyncio.timeout(30):  # its total_timeout is 900 s
        response = await ask(proxy, stream=stream)
    assert health.calls, "it was asked, and answered"
    assert response.status_code == 200 and "error" not in response.text
    assert asked(proxy.upstream) == ["fast", "standard"]
    assert await is_degraded(proxy)
