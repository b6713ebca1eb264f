"""Before a call is made again whose result has just come, the next tier is asked, once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.calling import messages_of
from tests.server.climbing import asked
from tests.server.conftest import StartProxy
from tests.server.looping import CHAIN, STUCK, Agent, calling, endless
from tests.support.replies import (
    ROLE,
    TEXT,
    chunk,
    litellm_error,
    stream,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import RESET, Call, Reply, ScriptedServer, WhenWhole

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


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", FAILURES)
async def test_where_it_fails_the_first_reply_goes_out_and_nobody_else_is_asked(
    upstream: ScriptedServer, start_proxy: StartProxy, streamed: bool, name: str
) -> None:
    agent = Agent(await start_proxy(THREE))
    upstream.will(calling("look"), calling("look"), FAILURES[name])
    await twice(agent, stream=streamed)
    checked_first_reply(agent)
    assert asked(upstream) == ASKED
    agent.follow_up(agent.responses[0])
    upstream.will(calling("look"))
    await agent.turn()
    assert asked(upstream)[3:] == ["fast"], "nothing stays, and once was enough"
