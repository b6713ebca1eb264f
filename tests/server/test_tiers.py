"""A tier's queue, in which sessions take turns; and which tier a request starts at."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.server.asking import ask
from tests.server.conftest import StartProxy
from tests.server.counting import session
from tests.server.polling import until_metric
from tests.server.pressing import Gate
from tests.support.replies import data, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer


async def ask_many(proxy: RunningProxy, *sessions: str) -> list[asyncio.Task[httpx.Response]]:
    """One request after another, each in the queue before the next is sent."""
    tasks = []
    for number, name in enumerate(sessions):
        tasks.append(asyncio.create_task(ask(proxy, session(name), user=f"{name}{number}")))
        await until_metric(proxy, "mlx_stack_queue_depth", number + 1, tier="fast")
    return tasks


async def test_sessions_take_turns(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    """An agent with many requests can't starve another that has one."""
    proxy = await start_proxy({"tiers.fast.max_concurrency": 1})
    gate = Gate(upstream)
    first = asyncio.create_task(ask(proxy, session("greedy"), user="running"))
    await gate.next_call()
    tasks = await ask_many(proxy, *["greedy"] * 6, "modest")
    order = []
    for number in range(8):
        if number:
            await gate.next_call()
            order.append(upstream.calls[-1].json()["user"])
        gate.gates[number].set()
    await asyncio.gather(first, *tasks)
    assert order.index("modest6") <= 1
    greedy = [name for name in order if name.startswith("greedy")]
    assert greedy == sorted(greedy), "within a session: first come, first served"


async def test_a_failed_attempt_gives_its_slot_back(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"tiers.fast.max_concurrency": 1})
    for _ in range(3):
        upstream.will(Reply.sse(data(text_chunks("ok")[0])))
        assert (await ask(proxy)).status_code == 502
    upstream.will(text_stream("fine"))
    assert (await ask(proxy)).status_code == 200


# Which tier a request starts at, as far as it needs no stage

SETTINGS = {
    "tiers.fast.model": "group-fast",
    "tiers.standard.model": "group-standard",
    "reliability.escalation.chain": ["fast", "standard"],
    "reliability.escalation.aliases": {"gpt-4o-mini": "standard"},
}


@pytest.fixture
async def proxy(upstream: ScriptedServer, start_proxy: StartProxy) -> RunningProxy:
    upstream.models = ("group-fast", "group-standard", "embedder")
    upstream.always(text_stream())
    return await start_proxy(SETTINGS)


CASES = [
    ("gpt-4o-mini", None, "standard", "group-standard"),
    ("gpt-9-unheard-of", None, "fast", "group-fast"),
    ("embedder", None, "embedder", "embedder"),
    ("embedder", "standard", "standard", "group-standard"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
async def test_start_tier(
    case: tuple[str, str | None, str, str], upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    model, header, tier, group = case
    response = await ask(proxy, {"X-MLX-Stack-Tier": header} if header else None, model=model)
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-tier"] == tier
    assert upstream.calls[0].json()["model"] == group
    assert response.json()["model"] == "fast", "upstream's own word stays"


async def test_a_model_that_no_tier_names_is_other_in_metrics(proxy: RunningProxy) -> None:
    await ask(proxy, model="embedder")
    text = (await proxy.client.get("/metrics")).text
    assert 'tier="other"' in text
    assert "embedder" not in text


async def test_params_of_the_tier_are_put_in(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.always(text_stream())
    proxy = await start_proxy({"tiers.fast.params": {"temperature": 0.1, "top_k": 20}})
    await ask(proxy)
    sent = upstream.calls[0].json()
    assert (sent["temperature"], sent["top_k"]) == (0.1, 20)
