"""Held chunks of a mended reply, written anew: only what was mended, and in order."""

from __future__ import annotations

import json
from typing import Any

from mlx_stack_proxy.wire.chunks import Chunk, made
from mlx_stack_proxy.wire.reply import Reply, ToolCall
from mlx_stack_proxy.wire.rewrite import rewritten, without_reasoning
from tests.support.replies import TOP, USAGE, chunk, usage_chunk

Json = dict[str, Any]


def chunks(*payloads: Json) -> list[Chunk]:
    return [made(one) for one in payloads]


def mended(
    held: list[Chunk], text: str, *calls: ToolCall, index: int = 0, flowed: int = 0
) -> list[Json | None]:
    reply = Reply()
    for one in held:
        for event in one.events:
            reply.apply(event)
    choice = reply.choice(index)
    choice.text = text
    choice.tool_calls = list(calls)
    choice.finish_reason = "tool_calls" if calls else choice.finish_reason
    reply.mended.add(index)
    found = rewritten(held, reply, flowed)
    for one in found:
        assert json.loads(one.raw.removeprefix(b"data: ").removesuffix(b"\n\n")) == one.payload
    return [one.payload for one in found]


CALL = ToolCall("call_9", "search", '{"query": "x"}')


def call_delta(call: ToolCall = CALL, place: int = 0) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    return {
        "tool_calls": [{"index": place, "id": call.id, "type": "function", "function": function}]
    }


def test_text_becomes_a_call_just_before_the_finish() -> None:
    held = chunks(
        chunk({"role": "assistant", "content": "On it. <tool"}),
        chunk({"content": "_call>…"}),
        chunk({}, "stop"),
        usage_chunk(),
    )
    assert mended(held, "On it. ", CALL) == [
        chunk({"role": "assistant"}),
        chunk({"content": "On it. "}),
        chunk(call_delta()),
        chunk({}, "tool_calls"),
        usage_chunk(),
    ]


def test_what_has_flowed_is_not_said_again() -> None:
    held = chunks(chunk({"content": "<tool_call>…"}), chunk({}, "stop"))
    assert mended(held, "On it. ", CALL, flowed=7) == [
        chunk(call_delta()),
        chunk({}, "tool_calls"),
    ]


def test_all_else_stays_where_it_was() -> None:
    held = chunks(
        chunk({"role": "assistant", "reasoning_content": "Hm."}, logprobs=None, token=7),
        {**chunk({"content": "<tool_call>", "mood": "so"}), "region": "north"},
        {**chunk({"content": "…"}, "stop", stop_token=2), "usage": USAGE, "region": "north"},
    )
    before, mood, call, end = mended(held, "", CALL)
    assert before == held[0].payload
    assert mood == {**chunk({"mood": "so"}), "region": "north"}
    assert call == {**chunk(call_delta()), "region": "north"}
    assert end == {**chunk({}, "tool_calls", stop_token=2), "usage": USAGE, "region": "north"}


def test_comments_and_done_pass() -> None:
    held = [Chunk(b": keepalive\n\n", None, ()), *chunks(chunk({"content": "x"}, "stop"))]
    held.append(Chunk(b"data: [DONE]\n\n", None, (), done=True))
    reply = Reply()
    reply.choice(0).finish_reason = "stop"
    reply.mended.add(0)
    new = rewritten(held, reply, 0)
    assert new[0] is held[0]
    assert new[-1] is held[-1]


def test_a_choice_that_was_not_mended_goes_out_as_it_came() -> None:
    other = chunk({"content": "b"}, index=1)
    both = {**TOP, "object": "chat.completion.chunk"}
    both["choices"] = [chunk({"content": "a"})["choices"][0], other["choices"][0]]
    held = chunks(other, both, chunk({}, "stop"), chunk({}, "stop", index=1))
    new = mended(held, "A")
    assert new[0] is held[0].payload
    assert new[1] == {**both, "choices": other["choices"]}
    assert new[2:] == [chunk({"content": "A"}), chunk({}, "stop"), held[3].payload]


def test_a_server_that_finishes_twice() -> None:
    held = chunks(chunk({"content": "x"}), chunk({}, "stop"), chunk({}, "stop"))
    new = mended(held, "", CALL)
    assert new == [chunk(call_delta()), chunk({}, "tool_calls")]


def test_reasoning_of_a_second_attempt_is_left_out() -> None:
    held = chunks(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Hm."}),
        chunk({"reasoning": "Hm.", "content": "Yes."}),
        chunk({}, "stop"),
        usage_chunk(),
    )
    held.append(Chunk(b": x\n\n", None, ()))
    assert [one.payload for one in without_reasoning(held)] == [
        chunk({"content": "Yes."}),
        chunk({}, "stop"),
        usage_chunk(),
        None,
    ]


def test_calls_go_out_whole_and_numbered() -> None:
    held = chunks(
        chunk({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "search"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}),
        chunk({}, "tool_calls"),
    )
    other = ToolCall("call_8", "list_files", "{}")
    assert mended(held, "", CALL, other) == [
        chunk(call_delta()),
        chunk(call_delta(other, 1)),
        chunk({}, "tool_calls"),
    ]
