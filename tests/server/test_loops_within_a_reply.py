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


@pytest.mark.parametrize("field", ["content", "reasoning_content", "reasoning"])
async def test_the_next_tier_gets_the_request_and_the_hint(
    field: str, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"reliability.escalation.chain": ["fast", "standard"]})
    upstream.will(endless({field: STUCK}), text_stream("All", " done."))
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


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("piece", ["The same again. ", "\\n\\n\\n\\n"])
async def test_a_call_whose_arguments_go_round_is_stopped_too(
    piece: str, streams: bool, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Of servers that stream them; mlx-lm sends a call when it is whole."""
    proxy = await start_proxy({"reliability.escalation.chain": ["fast", "standard"]})
    begun = call_delta(0)
    begun["tool_calls"][0]["function"]["arguments"] = '{"query": "'
    more = data(chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}))
    good = Reply.sse(ROLE, data(chunk(call_delta(0))), data(chunk({}, finish="tool_calls")), DONE)
    upstream.will(Reply.sse(ROLE, data(chunk(begun)), *[more] * 600, SILENCE), good)
    response = await ask(proxy, stream=streams, tools=TOOLS)
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-loop"] == "circuit_break;detector=generation"
    assert response.headers["x-mlx-stack-tier"] == "standard"
    assert await upstream.calls[0].left_within(SECOND)
    assert "The same again" not in response.text
    assert "quokka" in response.text


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


@pytest.mark.parametrize("streams", [True, False])
async def test_on_break_stop_delivers_what_came_before(
    streams: bool, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({f"{RULES}.on_break": "stop"})
    upstream.will(endless({"content": STUCK}))
    response = await ask(proxy, stream=streams)
    assert response.status_code == 200
    assert await upstream.calls[0].left_within(SECOND)
    if streams:  # what went out is out
        assert finishes(response) == ["stop"]
        # If all came in one read, the headers could say it; else the closing comment does.
        said = response.headers.get("x-mlx-stack-loop", "").encode() + response.content
        assert b"circuit_break;detector=generation" in said
        return
    (choice,) = response.json()["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == STUCK
    assert response.headers["x-mlx-stack-loop"] == "circuit_break;detector=generation"


@pytest.mark.parametrize("streams", [True, False])
async def test_repeated_calls_are_cut_and_two_delivered(
    streams: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    calls = [data(chunk(call_delta(index))) for index in range(9)]
    upstream.will(Reply.sse(ROLE, *calls, SILENCE))
    response = await ask(proxy, stream=streams, tools=TOOLS)
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-truncated"] == "repeated_tool_calls"
    assert response.headers["x-mlx-stack-loop"] == "warning;detector=repeated_tool_calls"
    assert response.headers["x-mlx-stack-attempts"] == "1"
    assert await upstream.calls[0].left_within(SECOND)
    if streams:
        found = [call for one in deltas(response) for call in one.get("tool_calls", ())]
        assert finishes(response) == ["tool_calls"]
        assert response.content.endswith(b"data: [DONE]\n\n")
    else:
        (choice,) = response.json()["choices"]
        found = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls"
    assert [one["id"] for one in found] == ["call_0", "call_1"]
    await until_metric(proxy, "mlx_stack_truncations_total", 1, kind="repeated_tool_calls")
    text = (await proxy.client.get("/metrics")).text
    assert "mlx_stack_tokens_saved_total" in text


async def test_repeated_calls_as_text_behind_text(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    call = '<tool_call>{"name": "look", "arguments": {"query": "quokka"}}</tool_call>\n'
    pieces = [call[at : at + 8] for at in range(0, len(call), 8)] * 9
    chunks = [data(chunk({"content": piece})) for piece in ["Let me look.\n", *pieces]]
    upstream.will(Reply.sse(ROLE, *chunks, SILENCE))
    response = await ask(proxy, stream=True, tools=TOOLS)
    found = [call for one in deltas(response) for call in one.get("tool_calls", ())]
    assert len(found) == 2
    assert text_of(response.content) == "Let me look.\n"
    assert finishes(response) == ["tool_calls"]
    assert b'"truncated":"repeated_tool_calls"' in response.content
    assert await upstream.calls[0].left_within(SECOND)


async def test_the_next_tier_is_not_told_what_was_said_to_the_one_before(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """A tier that thinks without end is told to answer directly; the next one gets the request."""
    proxy = await start_proxy(
        {
            "reliability.escalation.chain": ["fast", "standard"],
            "reliability.loop_detection.generation.max_reasoning_tokens": 10,
        }
    )
    thoughts = [data(chunk({"reasoning_content": f"thought number {n}, "})) for n in range(60)]
    thinking = Reply.sse(*thoughts, data(chunk({}, "stop")), DONE)
    upstream.will(thinking, thinking, text_stream("Hello"))
    response = await ask(proxy)
    assert response.headers["x-mlx-stack-tier"] == "standard"
    first, again, last = [messages_of(call) for call in upstream.calls]
    assert "Answer directly" in again[-1]["content"]
    assert last == first


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
