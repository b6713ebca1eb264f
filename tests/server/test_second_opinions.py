"""Before a call or an id goes out that is likely wrong, the next tier is asked, once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.asking import ask
from tests.server.calling import GET_ORDER, deltas, getting, messages_of
from tests.server.climbing import asked
from tests.server.conftest import StartProxy
from tests.server.looping import CHAIN, STUCK, Agent, calling, endless
from tests.support.replies import (
    ROLE,
    TEXT,
    chunk,
    data,
    litellm_error,
    stream,
    text_chunks,
    text_stream,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import RESET, Call, Reply, ScriptedServer, Wait, WhenWhole

ASKED = ["fast", "fast", "standard"]
COUNTED = 'mlx_stack_loops_total{action="second_opinion",detector="repetition"} '
THREE = {
    "tiers": {name: {"model": name} for name in ("fast", "standard", "longctx")},
    CHAIN: ["fast", "standard", "longctx"],
}


async def asked_how_often(proxy: RunningProxy) -> float:
    lines = (await proxy.client.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(COUNTED))


async def twice(agent: Agent, **more: Any) -> None:
    """A call, its result, and what comes then."""
    agent.follow_up(await agent.turn())
    await agent.turn(**more)


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
    proxy = await start_proxy({CHAIN: ["fast", "standard"]})
    agent = Agent(proxy)
    upstream.will(calling("look"), calling("look"), calling("read", text="Let me see."))
    await twice(agent, stream=streamed)
    assert asked(upstream) == ASKED
    assert messages_of(upstream.calls[2]) == agent.messages
    last = agent.responses[-1]
    assert agent.header(2) == "warning;detector=repetition"
    assert last.headers["x-mlx-stack-escalation-reason"] == "loop_detected"
    assert '"read"' in last.text
    assert await asked_how_often(proxy) == 1
    upstream.will(calling("note"))
    await agent.turn()
    assert asked(upstream)[3:] == ["fast"], "a doubt says nothing of the next turn"


@pytest.mark.parametrize("text", ["", "Let me look."])
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_agent_that_waits_is_asked_about_once_and_left_alone(
    upstream: ScriptedServer, start_proxy: StartProxy, streamed: bool, text: str
) -> None:
    def answer(call: Call) -> Reply:
        said = calling("look", text=text if call.json()["model"] == "standard" else "")
        return said.with_headers(("x-litellm-model-id", call.json()["model"]))

    upstream.otherwise = WhenWhole(answer)
    proxy = await start_proxy({CHAIN: ["fast", "standard"]})
    agent = Agent(proxy)
    first = await agent.turn()
    for _ in range(2):
        agent.follow_up(first)
        await agent.turn(stream=streamed)
        checked_first_reply(agent)
        assert agent.responses[-1].headers["x-litellm-model-id"] == "fast"
    assert asked(upstream) == [*ASKED, "fast"]
    assert await asked_how_often(proxy) == 1


BAD_CALL = stream(
    [
        chunk({"role": "assistant", "content": "So: "}),
        chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "gone"}}]}),
        chunk({}, "tool_calls"),
    ]
)
FAILURES = {
    "refused": litellm_error(400, "no"),
    "broken off": Reply.sse(ROLE, TEXT, RESET),
    "a bad call": BAD_CALL,
    "a text without end": endless({"content": STUCK}),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_where_it_fails_the_first_reply_goes_out_and_nobody_else_is_asked(
    upstream: ScriptedServer, start_proxy: StartProxy, name: str
) -> None:
    agent = Agent(await start_proxy(THREE))
    upstream.will(calling("look"), calling("look"), FAILURES[name])
    await twice(agent)
    checked_first_reply(agent)
    assert asked(upstream) == ASKED
    agent.follow_up(agent.responses[0])
    upstream.will(calling("look"))
    await agent.turn()
    assert asked(upstream)[3:] == ["fast"], "nothing stays, and once was enough"


# Before an id goes out that is hardly the one that is meant, the next tier is asked, too

TWO_TIERS = {"reliability.escalation.chain": ["fast", "standard"]}
ORDERS = [GET_ORDER]
LOOK_UP = [{"role": "user", "content": "Look up order 8874449."}]


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_next_tiers_goes_out_in_its_stead(
    upstream: ScriptedServer, start_proxy: StartProxy, streamed: bool
) -> None:
    proxy = await start_proxy(TWO_TIERS)
    upstream.will(getting("887449"), getting("8874449"))
    response = await ask(proxy, messages=LOOK_UP, tools=ORDERS, stream=streamed)
    assert asked(upstream) == ["fast", "standard"]
    assert messages_of(upstream.calls[1]) == LOOK_UP, "nobody tells it anything"
    assert "8874449" in response.text
    assert response.headers["x-mlx-stack-tier"] == "standard"
    assert response.headers["x-mlx-stack-escalation-reason"] == "tool_validation_failure"
    upstream.will(text_stream("Done."))
    await ask(proxy, messages=LOOK_UP, tools=ORDERS)
    assert asked(upstream)[2:] == ["fast"], "a doubt doesn't hold the session there"


@pytest.mark.parametrize(
    "answer",
    [
        getting("887449"),
        getting("88744499"),
        text_stream("I can't help with that."),
        litellm_error(500, "no"),
        text_stream(""),
    ],
    ids=["the same", "another slip", "no call", "an error", "nothing"],
)
async def test_else_it_goes_out_as_it_is_and_is_not_asked_about_again(
    upstream: ScriptedServer, start_proxy: StartProxy, answer: Reply
) -> None:
    proxy = await start_proxy(TWO_TIERS)
    upstream.will(getting("887449"), answer, getting("887449"))
    response = await ask(proxy, messages=LOOK_UP, tools=ORDERS, stream=True)
    assert asked(upstream) == ["fast", "standard"]
    assert response.status_code == 200
    assert "error" not in response.text
    assert response.headers["x-mlx-stack-tier"] == "fast"
    assert "x-mlx-stack-escalated-from" not in response.headers
    (call,) = [one for delta in deltas(response) for one in delta.get("tool_calls", ())]
    assert call["function"]["arguments"] == '{"order_id": "887449"}'
    said: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "not found"},
        {"role": "user", "content": "Once more."},
    ]
    await ask(proxy, messages=[*LOOK_UP, *said], tools=ORDERS)
    assert asked(upstream)[2:] == ["fast"]


async def test_nobody_waits_for_a_tier_that_is_busy(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**TWO_TIERS, "tiers.standard.max_concurrency": 1})
    release = asyncio.Event()
    role, text, end = (data(one) for one in text_chunks("Slowly."))
    upstream.will(Reply.sse(role, text, Wait(release), end), getting("887449"))
    other = asyncio.create_task(ask(proxy, {"x-mlx-stack-tier": "standard"}))
    await upstream.next_call()
    response = await ask(proxy, messages=LOOK_UP, tools=ORDERS)
    assert "887449" in response.text
    assert asked(upstream) == ["standard", "fast"]
    release.set()
    await other
