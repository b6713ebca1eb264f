"""What other servers of these protocols test, asked of ours, in our own words.

By the project that met the case first: llama.cpp (tools/server/tests/unit/test_compat_*), Ollama
(anthropic/, openai/responses*_test.go), vLLM (tests/entrypoints/anthropic, openai/responses). Where
we answer otherwise than they do, the case says so.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.fuzz.test_dialects import payloads
from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.wire.dialect import Context
from mlx_stack_proxy.wire.messages import MESSAGES
from mlx_stack_proxy.wire.responses import RESPONSES
from tests.support.deltas import Speaking, spoken
from tests.support.messages import called, gave, reminder, says, tool_call
from tests.support.replies import TOP, chunk, usage_chunk

Json = dict[str, Any]


def thinking(text: str) -> Json:
    return {"type": "thinking", "thinking": text, "signature": "s"}


def function_call(number: int, name: str = "f", **more: Any) -> Json:
    call_id = {"call_id": f"call_{number}"}
    return {"type": "function_call", **call_id, "name": name, "arguments": "{}", **more}


def output(number: int, said: Any) -> Json:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": said}


def result(content: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": "call_1", "content": content}


HI = says("user", "Hi")
WHY = {"type": "reasoning_text", "text": "Why?"}
TEXT = {"type": "text", "text": "Hi"}
GO = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Go."}]}
TOOL_IMAGES = [
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    {"type": "image", "source": {"type": "url", "url": "https://localhost/a.png"}},
]
USED = says("assistant", [{"type": "tool_use", "id": "call_1", "name": "f", "input": {}}])
CALLED = called(tool_call("call_1"))

# By project and case: the messages of a request, and the chat messages that they come to.
OF_MESSAGES: dict[str, tuple[list[Json], list[Json]]] = {
    "Ollama: a message of thinking alone is kept": (
        [HI, says("assistant", [thinking("Hm.")])],
        [HI, says("assistant", "", reasoning_content="Hm.")],
    ),
    "vLLM: several thoughts are one": (
        [HI, says("assistant", [thinking("A. "), thinking("B."), TEXT])],
        [HI, says("assistant", "Hi", reasoning_content="A. B.")],
    ),
    "vLLM: the images of a result follow it, all in one message": (
        [HI, USED, says("user", [result(TOOL_IMAGES)])],
        [
            HI,
            CALLED,
            gave("call_1", "\n\n".join(["[an image: see the message after this]"] * 2)),
            says(
                "user",
                [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    {"type": "image_url", "image_url": {"url": "https://localhost/a.png"}},
                ],
            ),
        ],
    ),
    "llama.cpp: text beside a result; it goes behind, where they put it before": (
        [HI, USED, says("user", [TEXT, result("25°C")])],
        [HI, CALLED, gave("call_1", "25°C"), HI],
    ),
    "forge (ADR 012): two replies in a row are one message, as strict templates want": (
        [HI, says("assistant", "A."), says("assistant", [TEXT]), HI],
        [HI, says("assistant", "A.\n\nHi"), HI],
    ),
    "Ollama: a result without its call": (
        [says("user", [result("25°C")])],
        [gave("call_1", "25°C")],
    ),
}


@pytest.mark.parametrize("name", OF_MESSAGES)
def test_requests_of_messages(name: str) -> None:
    messages, expected = OF_MESSAGES[name]
    found = MESSAGES.to_chat({"model": "m", "messages": messages}, {}).body
    assert found["messages"] == expected


# The items of a request, and the chat messages that they come to.
OF_RESPONSES: dict[str, tuple[Any, list[Json]]] = {
    "Ollama: a call joins the message before it": (
        [HI, GO, function_call(1, arguments='{ "a":1}')],
        [HI, called(tool_call("call_1", arguments='{ "a":1}'), content="Go.")],
    ),
    "vLLM: calls in a row are one message, and their results follow": (
        [HI, function_call(1), function_call(2, "g"), output(1, "a"), output(2, "b")],
        [
            HI,
            called(tool_call("call_1"), tool_call("call_2", "g")),
            gave("call_1", "a"),
            gave("call_2", "b"),
        ],
    ),
    "vLLM: a result between calls parts them": (
        [HI, function_call(1), output(1, "a"), function_call(2)],
        [HI, CALLED, gave("call_1", "a"), called(tool_call("call_2"))],
    ),
    "Ollama: two replies in a row; they are one message, where they make two": (
        [HI, GO, function_call(1), GO, function_call(2)],
        [HI, called(tool_call("call_1"), tool_call("call_2"), content="Go.\n\nGo.")],
    ),
    "vLLM: replayed items without ids, status and annotations": (
        [HI, {"type": "reasoning", "summary": [], "content": [WHY]}, GO],
        [HI, says("assistant", "Go.", reasoning_content="Why?")],
    ),
    "Ollama: results in another order than their calls": (
        [
            HI,
            function_call(1, "read"),
            {
                "type": "custom_tool_call",
                "call_id": "call_2",
                "namespace": "ns",
                "name": "note",
                "input": "  C:\\a\n\t雪 <b>\r\n ",
            },
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "雪  "},
            output(1, "first"),
        ],
        [
            HI,
            called(
                tool_call("call_1", "read"),
                tool_call("call_2", "ns__note", '{"input":"  C:\\\\a\\n\\t雪 <b>\\r\\n "}'),
            ),
            gave("call_2", "雪  "),
            gave("call_1", "first"),
        ],
    ),
    "Ollama: an item that nobody knows; it is said, where they refuse it": (
        [HI, {"type": "unknown_tool_call", "a": 1}],
        [HI, says("assistant", '[unknown_tool_call] {"a":1}')],
    ),
    "Ollama: an output that is an object; it is said, where they refuse it": (
        [HI, function_call(1), output(1, {"a": 1})],
        [HI, CALLED, gave("call_1", '{"output":{"a":1}}')],
    ),
    "Claude Code puts news between a call and its result: nothing may stand there": (
        [HI, function_call(1), says("developer", "New."), output(1, "a"), HI],
        [HI, CALLED, gave("call_1", "a"), says("user", f"{reminder('New.')}\n\nHi")],
    ),
    "llama.cpp: a system message and no type": (
        [says("system", "Book"), HI],
        [says("system", "Book"), HI],
    ),
}


@pytest.mark.parametrize("name", OF_RESPONSES)
def test_requests_of_responses(name: str) -> None:
    items, expected = OF_RESPONSES[name]
    found = RESPONSES.to_chat({"model": "m", "input": items}, {}).body
    assert found["messages"] == expected


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "f"}, "input[0].input"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": {}}, "input[0].input"),
        ({"type": "custom_tool_call_output", "output": "x"}, "input[0].call_id"),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
    ],
)
def test_items_that_belong_to_nothing(item: Json, param: str) -> None:
    """Ollama, vLLM: a call without its text, and a result of no call."""
    with pytest.raises(ProxyError) as refused:
        RESPONSES.to_chat({"model": "m", "input": [item]}, {})
    assert (refused.value.status, refused.value.param) == (400, param)


def blocks(*deltas: Json, finish: str = "tool_calls") -> list[Any]:
    """The blocks of a reply as their kinds and what they hold, and why it stopped."""
    encoder = Speaking(MESSAGES.encoder(Context("req_1", "m", None, lambda: 7)))
    chunks = [chunk(says("assistant", "")), *map(chunk, deltas), chunk({}, finish)]
    data = b"".join([encoder.chunk(one) for one in [*chunks, usage_chunk()]]) + encoder.end()
    found: list[Any] = []
    for event in payloads(data):
        if event["type"] == "content_block_start":
            assert event["index"] == len(found), "llama.cpp: indexes in their order"
            kind = event["content_block"]["type"]
            held = {"text": "text", "thinking": "thinking", "tool_use": "input"}[kind]
            assert not event["content_block"][held], "Ollama: the field is there, and empty"
            found.append([kind, ""])
        elif event["type"] == "content_block_delta":
            found[-1][1] += next(value for key, value in event["delta"].items() if key != "type")
        elif event["type"] == "message_delta":
            found.append(event["delta"]["stop_reason"])
    return found


CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("text", ["\n", "   ", "Sure. "])
def test_text_and_a_call_in_one_piece(text: str) -> None:
    """vLLM: the call was lost behind the text."""
    found = blocks({"reasoning_content": "Hm."}, {"content": text, "tool_calls": [CALL]})
    assert found == [["thinking", "Hm."], ["text", text], ["tool_use", "{}"], "tool_use"]


def test_an_empty_piece_opens_no_block() -> None:
    """vLLM."""
    assert blocks({"content": ""}, {"tool_calls": [CALL]}) == [["tool_use", "{}"], "tool_use"]
    assert blocks({"content": ""}, {"content": "a"}, finish="stop") == [["text", "a"], "end_turn"]


@pytest.mark.parametrize("arguments", ["{", "[1]", "null", ""])
def test_arguments_that_are_no_object(arguments: str) -> None:
    """Ollama leaves such a call out: we judge it before, and what is not judged goes on."""
    function = {"name": "f", "arguments": arguments}
    kind, reason = blocks({"tool_calls": [{**CALL, "function": function}]})
    assert kind[0] == "tool_use"
    assert reason == "tool_use"


@pytest.mark.parametrize(
    ("cached", "fresh"),
    [(80, 20), (0, 100), (100, 0), (None, 100), (120, 0)],
)
def test_cached_tokens_are_no_fresh_ones(cached: int | None, fresh: int) -> None:
    """vLLM: input_tokens is what was not read from a cache."""
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110, **details}
    choice = {"index": 0, "message": says("assistant", "Hi"), "finish_reason": "stop"}
    whole = {**TOP, "choices": [choice], "usage": usage}
    found = spoken(MESSAGES, whole, Context("req_1", "m", None, lambda: 7))["usage"]
    assert (found["input_tokens"], found["cache_read_input_tokens"]) == (fresh, cached or 0)
