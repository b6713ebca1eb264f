"""The events of a response: their order, numbers and ids; and the same reply as one object."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from mlx_stack_proxy.errors import ProxyError, unreachable
from mlx_stack_proxy.wire.responses import RESPONSES
from mlx_stack_proxy.wire.responses.stream import ResponseStream
from tests.support.deltas import Speaking, spoken
from tests.support.replies import USAGE, chunk, completion
from tests.wire.responses.made import call, check_strictly, context, events, streamed
from tests.wire.responses.test_tools import AGENTS, PATCH, READ

Json = dict[str, Any]
TOOLS: Json = {"model": "fast", "input": "Hi", "tools": [READ, PATCH, AGENTS]}
PATCHING = json.dumps({"input": "*** Begin Patch\n*** End Patch\n"})
EVERYTHING = [
    {"reasoning_content": "Hm"},
    {"reasoning_content": "."},
    {"content": "I "},
    {"content": "look."},
    call("read", '{"path":'),
    {"tool_calls": [{"index": 0, "function": {"arguments": '"a"}'}}]},
    call("apply_patch", PATCHING, 1, "call_2"),
    call("agents__spawn", "{}", 2, "call_3"),
]
# The least fields of each event, as Open Responses lists them.
ABOUT_RESPONSE = {"response"}
ABOUT_ITEM = {"output_index", "item"}
IN_ITEM = {"item_id", "output_index"}
IN_PART = {*IN_ITEM, "content_index"}
FIELDS = {
    "response.created": ABOUT_RESPONSE,
    "response.in_progress": ABOUT_RESPONSE,
    "response.completed": ABOUT_RESPONSE,
    "response.incomplete": ABOUT_RESPONSE,
    "response.failed": ABOUT_RESPONSE,
    "response.output_item.added": ABOUT_ITEM,
    "response.output_item.done": ABOUT_ITEM,
    "response.content_part.added": {*IN_PART, "part"},
    "response.content_part.done": {*IN_PART, "part"},
    "response.output_text.delta": {*IN_PART, "delta", "logprobs"},
    "response.output_text.done": {*IN_PART, "text", "logprobs"},
    "response.refusal.delta": {*IN_PART, "delta"},
    "response.refusal.done": {*IN_PART, "refusal"},
    "response.reasoning_text.delta": {*IN_PART, "delta"},
    "response.reasoning_text.done": {*IN_PART, "text"},
    "response.function_call_arguments.delta": {*IN_ITEM, "delta"},
    "response.function_call_arguments.done": {*IN_ITEM, "name", "arguments"},
    "response.custom_tool_call_input.delta": {*IN_ITEM, "delta"},
    "response.custom_tool_call_input.done": {*IN_ITEM, "input"},
}
_NAMES = """
    id object created_at completed_at status incomplete_details model previous_response_id
    instructions output error tools tool_choice truncation parallel_tool_calls text top_p
    presence_penalty frequency_penalty top_logprobs temperature reasoning usage
    max_output_tokens max_tool_calls store background service_tier metadata safety_identifier
    prompt_cache_key
"""
RESPONSE_FIELDS = set(_NAMES.split())
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def types(found: list[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in found]


def check_order(found: list[Json]) -> None:
    """What holds for every stream, whatever it says."""
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert types(found)[:2] == ["created", "in_progress"]
    opened: list[Json] = []
    done: list[Json] = []
    for event in found:
        kind = event["type"].removeprefix("response.")
        assert FIELDS[event["type"]] | {"type", "sequence_number"} == set(event)
        if kind == "output_item.added":
            assert len(opened) == len(done) == event["output_index"]
            opened.append(event["item"])
        elif kind == "output_item.done":
            done.append(event["item"])
            assert event["item"]["id"] == opened[-1]["id"]
            assert event["output_index"] == len(done) - 1
        elif "item_id" in event:
            assert len(opened) == len(done) + 1
            assert (event["item_id"], event["output_index"]) == (opened[-1]["id"], len(done))
        elif "response" in event:
            assert set(event["response"]) >= RESPONSE_FIELDS
    assert found[-1]["response"]["output"] == done
    assert len({item["id"] for item in done}) == len(done)


def test_the_events_of_a_text_and_of_a_call() -> None:
    """Ollama, llama.cpp: which events, in which order."""
    of_text = events(streamed([{"content": "Hello"}, {"content": "."}]))
    of_call = events(streamed([call("read", '{"a":1}')], "tool_calls", TOOLS))
    check_order(of_text)
    check_order(of_call)
    assert types(of_text) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.delta", "output_text.done", "content_part.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    assert types(of_call) == [
        "created", "in_progress", "output_item.added", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done", "completed",
    ]  # fmt: skip
    item = of_text[-1]["response"]["output"][0]
    assert (item["role"], item["content"][0]["text"]) == ("assistant", "Hello.")


def test_ids_say_of_what_they_are() -> None:
    found = events(streamed(EVERYTHING, "tool_calls", TOOLS))
    check_order(found)
    output = found[-1]["response"]["output"]
    assert [item["id"].split("_")[0] for item in output] == ["rs", "msg", "fc", "ctc", "fc"]
    assert streamed(EVERYTHING) == streamed(EVERYTHING)
    assert max(len(item["id"]) for item in output) <= 64


def test_calls_that_come_interleaved_are_whole() -> None:
    pieces = [
        call("read", '{"a":', 0, "x"),
        call("read", '{"b":', 1, "y"),
        {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "2}"}}]},
    ]
    found = events(streamed(pieces, "tool_calls", TOOLS))
    check_order(found)
    output = found[-1]["response"]["output"]
    assert [item["arguments"] for item in output] == ['{"a":1}', '{"b":2}']


def test_a_call_without_an_id_gets_one() -> None:
    pieces = [{"tool_calls": [{"index": 0, "function": {"name": "read", "arguments": "{}"}}]}]
    (item,) = events(streamed(pieces, "stop", TOOLS))[-1]["response"]["output"]
    assert item["call_id"].startswith("call_")


def test_a_text_that_is_no_object_is_a_custom_tools_input_as_it_is() -> None:
    raw = [call("apply_patch", "*** Begin Patch")]
    (item,) = events(streamed(raw, "tool_calls", TOOLS))[-1]["response"]["output"]
    assert item["input"] == "*** Begin Patch"


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
def test_a_reply_that_was_cut_is_incomplete(finish: str, reason: str) -> None:
    found = events(streamed([{"content": "Half"}], finish))
    check_order(found)
    last = found[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": reason}
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_usage_has_both_details() -> None:
    details: Json = {
        "prompt_tokens_details": {"cached_tokens": 5, "audio_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    stream = Speaking(ResponseStream(context()))
    data = stream.chunk({**chunk({"content": "x"}, "stop"), "usage": {**USAGE, **details}})
    said = events(data + stream.end({"tier": "fast"}))[-1]["response"]
    assert said["mlx_stack"] == {"tier": "fast"}
    assert said["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 13,
    }


def test_a_sign_of_life_is_an_event() -> None:
    """Codex counts no comments."""
    stream = Speaking(ResponseStream(context()))
    data = stream.encoder.keepalive()
    assert types(events(data + b"data: [DONE]\n\n")) == ["created", "in_progress"]
    data += (
        stream.encoder.keepalive()
        + stream.chunk(chunk({"content": "x"}))
        + stream.encoder.keepalive()
    )
    found = events(data + stream.end())
    check_order(found)
    assert types(found).count("in_progress") == 3


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProxyError(422, "loop_detected", "a circle"), "invalid_prompt"),
        (unreachable("refused"), "server_error"),
    ],
)
def test_an_error_ends_the_stream_as_one(error: ProxyError, code: str) -> None:
    stream = Speaking(ResponseStream(context()))
    data = stream.chunk(chunk({"content": "Half"})) + stream.encoder.error(error)
    said = events(data)
    for event in said:
        check_strictly(EVENT.validate_python(event))
    last = said[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    found = last["response"]["error"]
    assert (found["code"], found["message"]) == (code, error.message)
    at_once = events(ResponseStream(context()).error(error))
    assert types(at_once) == ["created", "in_progress", "failed"]


@pytest.mark.parametrize(
    ("field", "code"), [("content", "server_error"), ("reasoning_content", "invalid_prompt")]
)
def test_only_text_makes_a_broken_server_the_clients_affair(field: str, code: str) -> None:
    """After reasoning alone, the proxy has tried again itself, on every tier."""
    stream = Speaking(ResponseStream(context()))
    broken = ProxyError(502, "all_tiers_failed", "broke off")
    data = stream.chunk(chunk({field: "Half"})) + stream.encoder.error(broken)
    assert events(data)[-1]["response"]["error"]["code"] == code


def test_a_reply_that_says_nothing_has_an_end() -> None:
    """opencode asks again at once, forever, where none comes."""
    found = events(streamed([]))
    check_order(found)
    assert (types(found)[-1], found[-1]["response"]["output"]) == ("completed", [])


def test_the_request_comes_back_in_the_response() -> None:
    asked = {**TOOLS, "instructions": "Be brief.", "store": True, "max_output_tokens": 9}
    said = events(streamed([{"content": "x"}], body=asked))[0]["response"]
    assert (said["instructions"], said["max_output_tokens"]) == ("Be brief.", 9)
    assert (said["store"], said["tool_choice"], said["model"]) == (False, "auto", "fast")
    assert said["tools"] == [{**READ, "description": None}, PATCH, AGENTS]


def test_whole_is_what_the_stream_ends_with() -> None:
    read, patch = call("read", "{}"), call("apply_patch", PATCHING, 1, "call_2")
    calls = [*read["tool_calls"], *patch["tool_calls"]]
    message = {"reasoning_content": "Hm.", "content": "I look.", "tool_calls": calls}
    found = spoken(RESPONSES, completion(message, "tool_calls"), context(TOOLS))
    last = events(streamed([message], "tool_calls", TOOLS))[-1]["response"]
    assert orjson.loads(orjson.dumps(found)) == last


def test_text_flows_as_it_comes() -> None:
    stream = Speaking(ResponseStream(context()))
    stream.chunk(chunk({"role": "assistant", "content": ""}))
    first = stream.chunk(chunk({"content": "Hel"}))
    assert b'"delta":"Hel"' in first
    assert stream.chunk(chunk({"content": "lo"})).count(b"event: ") == 1
