"""What leads to another tier for one reply, and what for the turns behind it."""

from __future__ import annotations

from tests.server.climbing import asked
from tests.server.conftest import StartProxy
from tests.server.looping import CHAIN, Agent, calling
from tests.support.replies import ROLE, TEXT, data, stream, with_role
from tests.support.scripted_server import Reply, ScriptedServer

TWO = {CHAIN: ["fast", "standard"]}
# A call of no tool, which only one tool would take.
UNREADABLE = '```json\n{"name": "peek", "arguments": {"key": "x"}}\n```'
# What LiteLLM ends a stream with after 100 equal pieces.
REPEATING = "litellm.InternalServerError: The model is repeating the same chunk = travel."


async def test_a_text_that_may_hold_a_call_is_asked_of_the_next_tier_for_this_turn(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    agent = Agent(await start_proxy(TWO))
    unreadable = stream(with_role({"content": UNREADABLE}, finish="stop"))
    upstream.will(unreadable, calling("look"), calling("note"))
    response = await agent.turn()
    assert '"look"' in response.text
    assert "```" not in response.text
    agent.follow_up(response)
    await agent.turn()
    assert asked(upstream) == ["fast", "standard", "fast"]


async def test_where_the_next_tier_calls_wrongly_the_text_goes_out(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    agent = Agent(await start_proxy(TWO))
    unreadable = stream(with_role({"content": UNREADABLE}, finish="stop"))
    upstream.will(unreadable, calling("unknown"))
    response = await agent.turn(stream=False)
    assert response.json()["choices"][0]["message"]["content"] == UNREADABLE
    assert asked(upstream) == ["fast", "standard"]


async def test_a_stream_that_litellm_ends_as_a_loop_is_no_failure_of_the_server(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(TWO)
    agent = Agent(proxy)
    error = {"message": REPEATING, "type": None, "param": None, "code": "500"}
    upstream.will(Reply.sse(ROLE, TEXT, data({"error": error})), calling("look"))
    response = await agent.turn(stream=False)
    assert response.headers["x-mlx-stack-escalation-reason"] == "loop_detected"
    assert asked(upstream) == ["fast", "standard"], "the same tier would do the same again"


async def test_a_reply_of_which_nothing_came_is_asked_for_once_more_on_the_last_tier(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    agent = Agent(await start_proxy({CHAIN: ["standard"]}))
    upstream.will(stream(with_role(finish="length")), calling("look"))
    response = await agent.turn(stream=False, seed=4)
    assert '"look"' in response.text
    assert [call.json()["seed"] for call in upstream.calls] == [4, 5]
