"""An agent that goes round in circles, through the real proxy: told, broken, and how."""

from __future__ import annotations

from tests.server.asking import checked_error, text_of
from tests.server.calling import deltas, finishes, messages_of
from tests.server.climbing import asked
from tests.server.conftest import StartProxy
from tests.server.looping import BROKEN, CHAIN, HINTED, RULES, Agent, a_b_a_b, calling
from tests.support.replies import stream, with_role
from tests.support.scripted_server import ScriptedServer


async def test_a_b_a_b_is_told_and_then_broken(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    told = 6
    upstream.otherwise = a_b_a_b()
    agent = Agent(await start_proxy({f"{RULES}.on_break": "error"}))
    last = await agent.run(told + 1)
    error = checked_error(last, 422, "loop_detected")
    assert error["message"] == BROKEN
    assert error["retry_after"] == 5
    assert (error["detector"], error["repeats"]) == ("repetition", 3)
    assert [agent.header(n) for n in range(1, told)] == [None] * (told - 1)
    assert agent.header(told) == "warning;detector=repetition"
    assert agent.header(told + 1) == "circuit_break;detector=repetition"
    said = [
        [m["content"] for m in messages_of(call) if m["role"] == "user"] for call in upstream.calls
    ]
    hinted = [n for n, texts in enumerate(said, 1) if any(HINTED in str(text) for text in texts)]
    assert hinted == [told], "once for each pattern, and not before"
    metrics = (await agent.proxy.client.get("/metrics")).text
    assert 'mlx_stack_loops_total{action="warning",detector="repetition"} 1.0' in metrics
    assert 'mlx_stack_loops_total{action="circuit_break",detector="repetition"} 1.0' in metrics
    assert messages_of(upstream.calls[told - 1])[-1]["role"] == "user"
    assert messages_of(upstream.calls[told - 1])[:-1] == agent.messages[: 2 * told - 1]


async def test_stop_takes_the_calls_out_and_says_why(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.otherwise = lambda call: calling("look", text="Let me look again.")
    agent = Agent(await start_proxy({f"{RULES}.on_break": "stop"}))
    await agent.run(3)
    agent.follow_up(agent.responses[-1])
    for said in agent.messages:
        if said["role"] == "assistant":
            said["content"] = "Let me look again."
    response = await agent.turn()
    assert response.headers["x-mlx-stack-loop"] == "circuit_break;detector=repetition"
    assert finishes(response) == ["stop"]
    assert not [one for one in deltas(response) if one.get("tool_calls")]
    said_last = text_of(response.content)
    assert said_last.startswith("Let me look again.\n\n[Stopped: the call of look ")


async def test_the_next_tier_gets_the_hint_and_is_believed_until_the_fifth_call(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.otherwise = lambda call: calling("look")
    changes = {CHAIN: ["fast", "standard"], "reliability.escalation.sticky_seconds": 0}
    agent = Agent(await start_proxy(changes))
    fourth = await agent.run(4)
    assert fourth.status_code == 200
    assert fourth.headers["x-mlx-stack-escalated-from"] == "fast"
    assert fourth.headers["x-mlx-stack-escalation-reason"] == "loop_detected"
    assert fourth.headers["x-mlx-stack-loop"] == "circuit_break;detector=repetition"
    assert "3 times" in messages_of(upstream.calls[-1])[-1]["content"]
    agent.follow_up(fourth)
    checked_error(await agent.turn(), 422, "loop_detected")


# What leads to another tier for one reply, and what for the turns behind it

TWO = {CHAIN: ["fast", "standard"]}
# No format reads it, but a tool's name stands beside a mark that closes calls.
UNREADABLE = "look: key = x </tool_call>"


async def test_a_text_that_may_hold_a_call_is_asked_of_the_next_tier_for_this_turn(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    agent = Agent(await start_proxy({**TWO, "stream.mode": "buffered"}))
    unreadable = stream(with_role({"content": UNREADABLE}, finish="stop"))
    upstream.will(unreadable, calling("look"), calling("note"))
    response = await agent.turn()
    assert '"look"' in response.text
    assert "tool_call>" not in response.text
    agent.follow_up(response)
    await agent.turn()
    assert asked(upstream) == ["fast", "standard", "fast"]
