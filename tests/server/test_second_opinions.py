"""Before a call or an id goes out that is likely wrong, the next tier is asked, once.

When it is asked, and which reply goes out: tests/driver/test_next_step.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.asking import ask
from tests.server.calling import GET_ORDER, deltas, getting, messages_of
from tests.server.climbing import asked
from tests.server.conftest import StartProxy
from tests.server.looping import CHAIN, Agent, calling
from tests.support.replies import data, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Call, Reply, ScriptedServer, Wait, WhenWhole

ASKED = ["fast", "fast", "standard"]
COUNTED = 'mlx_stack_loops_total{action="second_opinion",detector="repetition"} '
TWO = {CHAIN: ["fast", "standard"]}


async def asked_how_often(proxy: RunningProxy) -> float:
    lines = (await proxy.client.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(COUNTED))


def checked_first_reply(agent: Agent) -> None:
    """The last response is `fast`'s call, as if nobody had been asked."""
    last = agent.responses[-1]
    assert last.status_code == 200
    assert "error" not in last.text
    assert '"look"' in last.text
    assert last.headers["x-mlx-stack-tier"] == "fast"
    assert "x-mlx-stack-escalated-from" not in last.headers
    assert agent.header(len(agent.responses)) is None


@pytest.mark.parametrize("streamed", [False, True])
async def test_it_is_the_next_tiers_and_nobody_tells_it_anything(
    upstream: ScriptedServer, start_proxy: StartProxy, streamed: bool
) -> None:
    agent = Agent(proxy := await start_proxy(TWO))
    upstream.will(calling("look"), calling("look"), calling("read", text="Let me see."))
    agent.follow_up(await agent.turn())
    last = await agent.turn(stream=streamed)
    assert asked(upstream) == ASKED
    assert messages_of(upstream.calls[2]) == agent.messages
    assert agent.header(2) == "warning;detector=repetition"
    assert last.headers["x-mlx-stack-escalation-reason"] == "loop_detected"
    assert '"read"' in last.text
    assert await asked_how_often(proxy) == 1
    upstream.will(calling("note"))
    await agent.turn()
    assert asked(upstream)[3:] == ["fast"], "a doubt says nothing of the next turn"


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_agent_that_waits_is_asked_about_once_and_left_alone(
    upstream: ScriptedServer, start_proxy: StartProxy, streamed: bool
) -> None:
    def answer(call: Call) -> Reply:
        model = call.json()["model"]
        said = calling("look", text="Let me look." if model == "standard" else "")
        return said.with_headers(("x-litellm-model-id", model))

    upstream.otherwise = WhenWhole(answer)
    agent = Agent(proxy := await start_proxy(TWO))
    first = await agent.turn()
    for _ in range(2):
        agent.follow_up(first)
        await agent.turn(stream=streamed)
        checked_first_reply(agent)
        assert agent.responses[-1].headers["x-litellm-model-id"] == "fast"
    assert asked(upstream) == [*ASKED, "fast"]
    assert await asked_how_often(proxy) == 1


# Before an id goes out that is hardly the one that is meant, the next tier is asked, too

LOOK_UP: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Look up order 8874449."}],
    "tools": [GET_ORDER],
}


async def test_the_next_tiers_goes_out_in_its_stead(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(TWO)
    proxy.upstream.will(getting("887449"), getting("8874449"))
    response = await ask(proxy, **LOOK_UP)
    assert asked(proxy.upstream) == ["fast", "standard"]
    assert messages_of(proxy.upstream.calls[1]) == LOOK_UP["messages"], "nobody tells it anything"
    assert "8874449" in response.text
    assert response.headers["x-mlx-stack-tier"] == "standard"
    assert response.headers["x-mlx-stack-escalation-reason"] == "tool_validation_failure"
    proxy.upstream.will(text_stream("Done."))
    await ask(proxy, **LOOK_UP)
    assert asked(proxy.upstream)[2:] == ["fast"], "a doubt doesn't hold the session there"


@pytest.mark.parametrize(
    "answer",
    [getting("887449"), getting("88744499"), text_stream("I can't help with that.")],
    ids=["the same", "another slip", "no call"],
)
async def test_else_it_goes_out_as_it_is(start_proxy: StartProxy, answer: Reply) -> None:
    proxy = await start_proxy(TWO)
    proxy.upstream.will(getting("887449"), answer)
    response = await ask(proxy, **LOOK_UP, stream=True)
    assert asked(proxy.upstream) == ["fast", "standard"]
    assert response.status_code == 200
    assert "error" not in response.text
    assert response.headers["x-mlx-stack-tier"] == "fast"
    assert "x-mlx-stack-escalated-from" not in response.headers
    (call,) = [one for delta in deltas(response) for one in delta.get("tool_calls", ())]
    assert call["function"]["arguments"] == '{"order_id": "887449"}'


async def test_nobody_waits_for_a_tier_that_is_busy(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({**TWO, "tiers.standard.max_concurrency": 1})
    release = asyncio.Event()
    role, text, end = (data(one) for one in text_chunks("Slowly."))
    proxy.upstream.will(Reply.sse(role, text, Wait(release), end), getting("887449"))
    other = asyncio.create_task(ask(proxy, {"x-mlx-stack-tier": "standard"}))
    await proxy.upstream.next_call()
    response = await ask(proxy, **LOOK_UP)
    assert "887449" in response.text
    assert asked(proxy.upstream) == ["standard", "fast"]
    release.set()
    await other
