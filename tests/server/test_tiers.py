"""A tier's queue, in which sessions take turns; and which tier a request starts at.

The rules: tests/escalation/test_tier_queue.py and test_tiers.py beside it.
"""

from __future__ import annotations

import asyncio

from tests.server.asking import ask
from tests.server.conftest import StartProxy
from tests.server.counting import session
from tests.server.polling import until_metric
from tests.server.pressing import Gate
from tests.support.replies import data, text_chunks, text_stream
from tests.support.scripted_server import Reply


async def test_sessions_take_turns(start_proxy: StartProxy) -> None:
    """An agent with many requests can't starve another that has one."""
    proxy = await start_proxy({"tiers.fast.max_concurrency": 1})
    gate = Gate(proxy.upstream)
    running = [asyncio.create_task(ask(proxy, session("greedy")))]
    await gate.next_call()
    for number, name in enumerate(("greedy", "greedy", "greedy", "modest")):
        running.append(asyncio.create_task(ask(proxy, session(name), user=f"{name}{number}")))
        await until_metric(proxy, "mlx_stack_queue_depth", number + 1, tier="fast")
    for number in range(4):
        gate.gates[number].set()
        await gate.next_call()
    gate.open()
    await asyncio.gather(*running)
    order = [call.json().get("user") for call in proxy.upstream.calls]
    assert order == [None, "greedy0", "modest3", "greedy1", "greedy2"]


async def test_a_failed_attempt_gives_its_slot_back(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"tiers.fast.max_concurrency": 1})
    proxy.upstream.will(Reply.sse(data(text_chunks("ok")[0])), text_stream("fine"))
    assert [(await ask(proxy)).status_code for _ in range(2)] == [502, 200]


async def test_start_tier(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(
        {
            "tiers.fast": {"model": "group-fast", "params": {"temperature": 0.1, "top_k": 20}},
            "tiers.standard.model": "group-standard",
            "reliability.escalation.chain": ["fast", "standard"],
            "reliability.escalation.aliases": {"gpt-4o-mini": "standard"},
        }
    )
    proxy.upstream.models = ("group-fast", "group-standard", "embedder")
    proxy.upstream.always(text_stream())
    params = {"temperature": 0.1, "top_k": 20}
    for model, header, tier, sent in (
        ("gpt-4o-mini", {}, "standard", {"model": "group-standard"}),
        ("embedder", {}, "embedder", {"model": "embedder"}),
        ("embedder", {"X-MLX-Stack-Tier": "fast"}, "fast", {"model": "group-fast", **params}),
    ):
        response = await ask(proxy, header, model=model)
        assert response.status_code == 200
        assert response.headers["x-mlx-stack-tier"] == tier
        body = proxy.upstream.calls[-1].json()
        assert {key: body[key] for key in ("model", *params) if key in body} == sent
        assert response.json()["model"] == "fast", "upstream's own word stays"
    told = (await proxy.client.get("/metrics")).text
    assert 'tier="other"' in told and "embedder" not in told
