"""Loops through the real proxy: of an agent across turns, and of a reply while it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.asking import ask, checked_error, payloads, text_of
from tests.server.calling import deltas, finishes, messages_of
from tests.server.climbing import asked
from tests.server.conftest import StartProxy
from tests.server.looping import (
    BROKEN,
    CHAIN,
    HINTED,
    RULES,
    STUCK,
    TOOLS,
    Agent,
    a_b_a_b,
    calling,
    endless,
)
from tests.server.polling import metric, until_metric
from tests.support.replies import (
    DONE,
    ROLE,
    chunk,
    data,
    stream,
    text_chunks,
    text_stream,
    with_role,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer

Json = dict[str, Any]
TWO = {CHAIN: ["fast", "standard"]}


async def test_a_b_a_b_is_told_and_then_broken(start_proxy: StartProxy) -> None:
    told = 6
    agent = Agent(await start_proxy({f"{RULES}.on_break": "error"}))
    agent.upstream.otherwise = a_b_a_b()
    last = await agent.run(told + 1)
    error = checked_error(last, 422, "loop_detected")
    assert error["message"] == BROKEN
    assert error["retry_after"] == 5
    assert (error["detector"], error["repeats"]) == ("repetition", 3)
    assert [agent.header(n) for n in range(1, told)] == [None] * (told - 1)
    assert agent.header(told) == "warning;detector=repetition"
    assert agent.header(told + 1) == "circuit_break;detector=repetition"
    said = [
        [m["content"] for m in messages_of(call) if m["role"] == "user"]
        for call in agent.upstream.calls
    ]
    hinted = [n for n, texts in enumerate(said, 1) if any(HINTED in str(text) for text in texts)]
    assert hinted == [told], "once for each pattern, and not before"
    metrics = (await agent.proxy.client.get("/metrics")).text
    assert 'mlx_stack_loops_total{action="warning",detector="repetition"} 1.0' in metrics
    assert 'mlx_stack_loops_total{action="circuit_break",detector="repetition"} 1.0' in metrics
    assert messages_of(agent.upstream.calls[told - 1])[-1]["role"] == "user"
    assert messages_of(agent.upstream.calls[told - 1])[:-1] == agent.messages[: 2 * told - 1]


async def test_stop_takes_the_calls_out_and_says_why(start_proxy: StartProxy) -> None:
    agent = Agent(await start_proxy({f"{RULES}.on_break": "stop"}))
    agent.upstream.otherwise = lambda call: calling("look", text="Let me look again.")
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


# A reply that loops while it is being written: cut, and then what

SECOND = 1.0


def call_delta(index: int) -> Json:
    function = {"name": "look", "arguments": json.dumps({"key": "quokka"})}
    one = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
    return {"tool_calls": [one]}


async def test_the_next_tier_gets_the_request_and_the_hint(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(TWO)
    proxy.upstream.will(endless({"reasoning": STUCK}), text_stream("All", " done."))
    response = await ask(proxy)
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "All done."
    assert response.headers["x-mlx-stack-loop"] == "circuit_break;detector=generation"
    assert response.headers["x-mlx-stack-escalated-from"] == "fast"
    assert response.headers["x-mlx-stack-escalation-reason"] == "loop_detected"
    first, second = proxy.upstream.calls
    assert await first.left_within(SECOND), "the model is stopped at once"
    assert "the same text again and again" in str(messages_of(second)[-1]["content"])
    loops = {"detector": "generation", "action": "circuit_break"}
    await until_metric(proxy, "mlx_stack_loops_total", 1, **loops)


async def test_after_text_the_next_tiers_call_joins_it(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(TWO)
    good = Reply.sse(ROLE, data(chunk(call_delta(0))), data(chunk({}, finish="tool_calls")), DONE)
    proxy.upstream.will(endless({"content": STUCK}), good)
    response = await ask(proxy, stream=True, tools=TOOLS)
    assert text_of(response.content).startswith(STUCK)
    assert finishes(response) == ["tool_calls"]
    assert '"name":"look"' in response.text.replace('": ', '":')
    first, second = proxy.upstream.calls
    assert await first.left_within(SECOND)
    assert "the same text again and again" in str(messages_of(second)[-1]["content"])


async def test_after_text_a_second_loop_ends_the_stream_with_the_error(
    start_proxy: StartProxy,
) -> None:
    proxy = await start_proxy({"reliability.escalation.max_retries_before_escalate": 1})
    proxy.upstream.will(endless({"content": STUCK}), endless({"content": STUCK}))
    response = await ask(proxy, stream=True)
    (error,) = [p["error"] for p in payloads(response.content) if p != "[DONE]" and "error" in p]
    assert response.content.endswith(DONE)
    assert error["type"] == "loop_detected"
    assert error["detector"] == "generation"
    assert error["repeats"] == 10
    assert len(text_of(response.content)) <= len(STUCK) + 400
    assert len(proxy.upstream.calls) == 2
    assert await proxy.upstream.calls[0].left_within(SECOND)


async def test_on_break_stop_delivers_what_came_before(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({f"{RULES}.on_break": "stop"})
    proxy.upstream.will(endless({"content": STUCK}))
    response = await ask(proxy)
    assert response.status_code == 200
    assert await proxy.upstream.calls[0].left_within(SECOND)
    (choice,) = response.json()["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == STUCK
    assert response.headers["x-mlx-stack-loop"] == "circuit_break;detector=generation"


@pytest.mark.specification(20)
async def test_repeated_calls_are_cut_and_two_delivered(proxy: RunningProxy) -> None:
    calls = [data(chunk(call_delta(index))) for index in range(9)]
    proxy.upstream.will(Reply.sse(ROLE, *calls, SILENCE))
    response = await ask(proxy, stream=True, tools=TOOLS)
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-truncated"] == "repeated_tool_calls"
    assert response.headers["x-mlx-stack-loop"] == "warning;detector=repeated_tool_calls"
    assert response.headers["x-mlx-stack-attempts"] == "1"
    assert await proxy.upstream.calls[0].left_within(SECOND)
    found = [call for one in deltas(response) for call in one.get("tool_calls", ())]
    assert [one["id"] for one in found] == ["call_0", "call_1"]
    assert finishes(response) == ["tool_calls"]
    assert response.content.endswith(b"data: [DONE]\n\n")
    labels = {"tier": "fast", "kind": "repeated_tool_calls"}
    await until_metric(proxy, "mlx_stack_truncations_total", 1, **labels)
    text = (await proxy.client.get("/metrics")).text
    assert "mlx_stack_tokens_saved_total" in text


# What a reply that was cut has cost is counted, though no usage ever comes for it

LAP = "The same sentence comes again and again. "
NAMED = {"X-MLX-Stack-Session": "run-11"}


async def used(proxy: Any) -> int:
    return int((await proxy.client.get("/mlx-stack/sessions/run-11")).json()["used"])


@pytest.mark.parametrize("on_break", ["error", "stop"])
async def test_a_text_that_was_cut(on_break: str, start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"reliability.loop_detection.on_break": on_break})
    proxy.upstream.will(stream(text_chunks(*[LAP] * 400), usage=False))
    response = await ask(proxy, NAMED, stream=True)
    assert "circuit_break;detector=generation" in response.text + str(response.headers)
    output = await metric(proxy, "mlx_stack_tokens_total", tier="fast", direction="output") or 0
    assert output >= 9 * len(LAP) // 4, "all that was generated, not only what was kept"
    assert output < 400 * len(LAP) // 4, "and no more"
    assert await used(proxy) > output
