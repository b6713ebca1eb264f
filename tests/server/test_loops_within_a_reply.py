"""A reply that goes round while it is being written, through the real proxy: cut, and then what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.asking import ask, payloads, text_of
from tests.server.calling import deltas, finishes, messages_of
from tests.server.conftest import StartProxy
from tests.server.looping import RULES, STUCK, endless
from tests.server.polling import metric_value, until_metric
from tests.support.replies import DONE, ROLE, chunk, data, stream, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer
from tests.tool_validation.calls import parameters, tool

Json = dict[str, Any]

TOOLS = [tool("look", parameters("query", query="string"))]
SECOND = 1.0


def call_delta(index: int) -> Json:
    function = {"name": "look", "arguments": json.dumps({"query": "quokka"})}
    one = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
    return {"tool_calls": [one]}


def error_in(stream: bytes) -> Json:
    (error,) = [p["error"] for p in payloads(stream) if p != "[DONE]" and "error" in p]
    assert stream.endswith(b"data: [DONE]\n\n")
    return dict(error)


async def test_the_next_tier_gets_the_request_and_the_hint(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"reliability.escalation.chain": ["fast", "standard"]})
    upstream.will(endless({"reasoning": STUCK}), text_stream("All", " done."))
    response = await ask(proxy)
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "All done."
    assert response.headers["x-mlx-stack-loop"] == "circuit_break;detector=generation"
    assert response.headers["x-mlx-stack-escalated-from"] == "fast"
    assert response.headers["x-mlx-stack-escalation-reason"] == "loop_detected"
    first, second = upstream.calls
    assert await first.left_within(SECOND), "the model is stopped at once"
    assert "repeated the same text" in str(messages_of(second)[-1]["content"])
    loops = {"detector": "generation", "action": "circuit_break"}
    await until_metric(proxy, "mlx_stack_loops_total", 1, **loops)


async def test_after_text_the_next_tiers_call_joins_it(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"reliability.escalation.chain": ["fast", "standard"]})
    good = Reply.sse(ROLE, data(chunk(call_delta(0))), data(chunk({}, finish="tool_calls")), DONE)
    upstream.will(endless({"content": STUCK}), good)
    response = await ask(proxy, stream=True, tools=TOOLS)
    assert text_of(response.content).startswith(STUCK)
    assert finishes(response) == ["tool_calls"]
    assert '"name":"look"' in response.text.replace('": ', '":')
    first, second = upstream.calls
    assert await first.left_within(SECOND)
    assert "repeated the same text" in str(messages_of(second)[-1]["content"])


async def test_after_text_a_second_loop_ends_the_stream_with_the_error(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(endless({"content": STUCK}), endless({"content": STUCK}))
    response = await ask(proxy, stream=True)
    error = error_in(response.content)
    assert error["type"] == "loop_detected"
    assert error["detector"] == "generation"
    assert error["repeats"] == 10
    assert len(text_of(response.content)) <= len(STUCK) + 400
    assert len(upstream.calls) == 2
    assert await upstream.calls[0].left_within(SECOND)


async def test_on_break_stop_delivers_what_came_before(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({f"{RULES}.on_break": "stop"})
    upstream.will(endless({"content": STUCK}))
    response = await ask(proxy)
    assert response.status_code == 200
    assert await upstream.calls[0].left_within(SECOND)
    (choice,) = response.json()["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == STUCK
    assert response.headers["x-mlx-stack-loop"] == "circuit_break;detector=generation"


async def test_repeated_calls_are_cut_and_two_delivered(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    calls = [data(chunk(call_delta(index))) for index in range(9)]
    upstream.will(Reply.sse(ROLE, *calls, SILENCE))
    response = await ask(proxy, stream=True, tools=TOOLS)
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-truncated"] == "repeated_tool_calls"
    assert response.headers["x-mlx-stack-loop"] == "warning;detector=repeated_tool_calls"
    assert response.headers["x-mlx-stack-attempts"] == "1"
    assert await upstream.calls[0].left_within(SECOND)
    found = [call for one in deltas(response) for call in one.get("tool_calls", ())]
    assert [one["id"] for one in found] == ["call_0", "call_1"]
    assert finishes(response) == ["tool_calls"]
    assert response.content.endswith(b"data: [DONE]\n\n")
    await until_metric(proxy, "mlx_stack_truncations_total", 1, kind="repeated_tool_calls")
    text = (await proxy.client.get("/metrics")).text
    assert "mlx_stack_tokens_saved_total" in text


# What a reply that was cut has cost is counted, though no usage ever comes for it

LAP = "The same sentence comes again and again. "
NAMED = {"X-MLX-Stack-Session": "run-11"}


async def used(proxy: Any) -> int:
    return int((await proxy.client.get("/mlx-stack/sessions/run-11")).json()["used"])


@pytest.mark.parametrize("on_break", ["error", "stop"])
async def test_a_text_that_was_cut(
    on_break: str, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.will(stream(text_chunks(*[LAP] * 400), usage=False))
    proxy = await start_proxy({"reliability.loop_detection.on_break": on_break})
    response = await ask(proxy, NAMED, stream=True)
    assert "circuit_break;detector=generation" in response.text + str(response.headers)
    text = (await proxy.client.get("/metrics")).text
    output = metric_value(text, "mlx_stack_tokens_total", tier="fast", direction="output") or 0
    assert output >= 9 * len(LAP) // 4, "all that was generated, not only what was kept"
    assert output < 400 * len(LAP) // 4, "and no more"
    assert await used(proxy) > output
