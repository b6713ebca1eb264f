"""Each tier's queue: sessions take turns, and a failed attempt gives its place back."""

from __future__ import annotations

import asyncio

import httpx

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
