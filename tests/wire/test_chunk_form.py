"""Chunks in other forms than OpenAI's: brought into that, or left out, or left as they are."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from mlx_stack_proxy.engine.verdicts import Failure
from mlx_stack_proxy.wire import sse
from mlx_stack_proxy.wire.chunks import MAX_CHOICES, ChunkReader, MalformedChunk
from mlx_stack_proxy.wire.delta import typed
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import ODD, attempt, client_request, completion_of, exchange, relayed
from tests.support.replies import (
    DONE,
    TOP,
    USAGE,
    WEATHER,
    chunk,
    completion,
    data,
    text_chunks,
    usage_chunk,
)

Json = dict[str, Any]
CHUNK = {**TOP, "object": "chat.completion.chunk"}
ROLE, A, B, END = text_chunks("Hello", " there.")
USUAL = [ROLE, A, B, END, usage_chunk()]


def out(*payloads: Json | bytes, **asked: Any) -> list[Json]:
    """The chunks that a client gets of these."""
    frames = [one if isinstance(one, bytes) else data(one) for one in payloads]
    one = attempt(exchange(client_request(**asked)))
    whole = relayed(one, [*frames, DONE])
    assert one.verdict is None
    *events, done, end = whole.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


def whole(*payloads: Json) -> Json:
    """The completion that a client gets of these chunks, which doesn't stream."""
    return completion_of(b"".join(map(data, payloads)) + DONE)


def each(change: Callable[[Json], Json]) -> list[Json]:
    return [change(json.loads(json.dumps(one))) for one in USUAL]


def each_choice(change: Callable[[Json], Json]) -> list[Json]:
    return each(lambda one: {**one, "choices": [change(choice) for choice in one["choices"]]})


def without(one: Json, *keys: str) -> Json:
    return {key: value for key, value in one.items() if key not in keys}


def with_delta(**more: Any) -> list[Json]:
    return each_choice(lambda one: {**one, "delta": {**one["delta"], **more}})


SAME_REPLY: dict[str, list[Json]] = {
    "null choices": [ROLE, A, {**CHUNK, "choices": None}, B, END, usage_chunk()],
    "no choices": [{**CHUNK}, ROLE, A, {}, {"type": "ping"}, B, END, usage_chunk()],
    "usage beside null choices": [ROLE, A, B, END, {**usage_chunk(), "choices": None}],
    "usage without choices": [ROLE, A, B, END, without(usage_chunk(), "choices")],
    "choices an object": each(lambda one: {**one, "choices": (one["choices"] or [[]])[0]}),
    "a null choice": [ROLE, A, {**CHUNK, "choices": [None]}, B, END, usage_chunk()],
    "a message": each_choice(lambda one: {**without(one, "delta"), "message": one["delta"]}),
    "a null message": each_choice(lambda one: {**one, "message": None}),
    "a null error": each(lambda one: {**one, "error": None}),
    "a null delta": each_choice(lambda one: {**one, "delta": None, "message": one["delta"]}),
    "a text": each_choice(
        lambda one: {**without(one, "delta"), "text": one["delta"].get("content")}
    ),
    "no delta at the end": [ROLE, A, B, {**END, "choices": [{"finish_reason": "stop"}]}, USUAL[4]],
    "no index": each_choice(lambda one: without(one, "index")),
    "an index that is text": each_choice(lambda one: {**one, "index": "0"}),
    "a role in each": with_delta(role="assistant"),
    "no role": [A, B, END, usage_chunk()],
    "a null role": with_delta(role=None),
    "Gemini's role": with_delta(role="model"),
    "a null call": with_delta(tool_calls=[None]),
    "calls an object": with_delta(tool_calls={}),
    "refusal a number": with_delta(refusal=0),
    "reasoning an object": with_delta(reasoning={"effort": 1}),
    "logprobs a list": each_choice(lambda one: {**one, "logprobs": []}),
    "the older object": each(lambda one: {**one, "object": "chat.completion"}),
    "no object": each(lambda one: without(one, "object")),
    "created a float": each(lambda one: {**one, "created": 1_780_000_000.0}),
    "created a text": each(lambda one: {**one, "created": "1780000000"}),
    "created too large": [ROLE, *({**one, "created": 1e40} for one in (A, B, END)), USUAL[4]],
    "one chunk says it": [ROLE, *({"choices": one["choices"]} for one in (A, B, END)), USUAL[4]],
    "eos": [ROLE, A, B, chunk({}, "eos"), usage_chunk()],
    "Gemini's STOP": [ROLE, A, B, chunk({}, "STOP"), usage_chunk()],
    "no total": [ROLE, A, B, END, usage_chunk(without(USAGE, "total_tokens"))],
    "floats": [ROLE, A, B, END, usage_chunk({key: float(USAGE[key]) for key in USAGE})],
    "counts as text": [ROLE, A, B, END, usage_chunk({key: str(USAGE[key]) for key in USAGE})],
    "odd details": [ROLE, A, B, END, usage_chunk({**USAGE, "prompt_tokens_details": []})],
}
SHOWN = {key: USUAL[0][key] for key in ("id", "created", "model", "object")}


def said(payloads: list[Json]) -> list[Any]:
    """What chunks say; ``None`` and what is empty says nothing."""
    found = []
    for one in payloads:
        assert {key: one[key] for key in SHOWN} == SHOWN and "error" not in one
        for choice in one["choices"]:
            assert choice["index"] == 0
            assert choice.get("logprobs") is None and "message" not in choice
            delta = {key: value for key, value in choice["delta"].items() if value}
            found.append((delta, choice["finish_reason"]))
        if one.get("usage"):
            assert {key: one["usage"][key] for key in USAGE} == USAGE
            assert {type(one["usage"][key]) for key in USAGE} == {int}
    return [one for one in found if one != ({}, None)]


@pytest.mark.parametrize("name", SAME_REPLY)
def test_what_can_mean_but_one_thing_is_said_as_openai_says_it(name: str) -> None:
    texts = [choice for choice in said(out(*SAME_REPLY[name])) if choice[0].get("content")]
    assert [delta["content"] for delta, _ in texts] == ["Hello", " there."]
    found = said(out(*SAME_REPLY[name]))
    assert [delta["role"] for delta, _ in found if "role" in delta] == ["assistant"]
    assert "role" in found[0][0]
    assert [set(delta) - {"role", "content"} for delta, _ in found] == [set()] * len(found)
    assert [finish for _, finish in found if finish] == ["stop"]
    assert whole(*SAME_REPLY[name]) == completion({"content": "Hello there."})


PARTS: dict[str, tuple[Any, str]] = {
    "parts": ([{"type": "text", "text": "Hi"}, {"type": "text", "text": "!"}], "Hi!"),
    "strings": (["Hi", "!"], "Hi!"),
    "one part": ({"type": "text", "text": "Hi"}, "Hi"),
    "a number": (42, "42"),
    "an object": ({"a": [1, None]}, '{"a":[1,null]}'),
}


@pytest.mark.parametrize("name", PARTS)
def test_content_is_a_string(name: str) -> None:
    content, text = PARTS[name]
    (first, _) = out(chunk({"role": "assistant", "content": content}), END)
    assert first["choices"][0]["delta"]["content"] == text
    assert whole(chunk({"content": content}), END)["choices"][0]["message"]["content"] == text


def test_thoughts_among_the_parts_are_reasoning() -> None:
    part = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    delta = out(chunk({"content": [part, {"type": "text", "text": "Yes."}]}), END)[0]["choices"][0]
    assert delta["delta"] == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning_content": "Hm.",
    }


CALL = {"index": 0, **WEATHER}
FORMED_CALL = {"index": 0, "id": "call_a", "type": "function", "function": WEATHER["function"]}


@pytest.mark.parametrize(
    "calls", [CALL, [None, CALL], [{**without(CALL, "function"), **WEATHER["function"]}]]
)
def test_calls_are_a_list_of_functions(calls: Any) -> None:
    call = out(ROLE, chunk({"tool_calls": calls}), chunk({}, "tool_calls"))[1]
    assert call["choices"][0]["delta"]["tool_calls"] == [FORMED_CALL]


@pytest.mark.parametrize("usage", [{}, "many", [1], dict.fromkeys(USAGE), {"prompt_tokens": True}])
def test_a_usage_without_counts_is_none(usage: Any) -> None:
    assert out(ROLE, A, END, usage_chunk({"x": 1} if usage == {} else usage))[3:] == [
        {**usage_chunk(), "usage": None}
    ]


@pytest.mark.parametrize(
    ("came", "said"),
    [
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("tool_use", "tool_calls"),
        ("SAFETY", "content_filter"),
        ("end_turn", "stop"),
        (True, "stop"),
        ({"type": "stop"}, "stop"),
        *((name, name) for name in ("stop", "length", "content_filter", "function_call")),
    ],
)
def test_a_reply_ends_by_a_name_that_clients_know(came: Any, said: str) -> None:
    assert out(ROLE, A, {**END, "choices": [{**END["choices"][0], "finish_reason": came}]})[2][
        "choices"
    ] == [{"index": 0, "delta": {}, "finish_reason": said}]


ERRORS: list[Json] = [
    {"object": "error", "message": "boom", "type": "InternalServerError", "code": 500},
    {"type": "error", "error": {"type": "overloaded_error", "message": "boom"}},
    {"detail": "boom"},
    {"error": {"message": "boom", "type": "server_error"}},
    {"error": "boom"},
    {**CHUNK, "choices": [{**A["choices"][0], "finish_reason": "error", "error": "boom"}]},
    {**chunk({}, "error"), "error": {"message": "boom", "code": 502}},
]


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_is_one_in_whatever_form(error: Json) -> None:
    one = attempt()
    text = one.feed(data(ROLE) + data(A) + data(error))
    assert text == data(ROLE) + data(A)
    assert isinstance(one.verdict, Failure) and one.verdict.fault == "server"
    assert one.verdict.message == "an error inside the answer: boom"


def test_a_reply_that_says_nothing_of_itself_gets_a_name() -> None:
    chunks = [{"choices": one["choices"]} for one in (ROLE, A, B, END)]
    for one in out(*chunks, model="fast"):
        assert without(one, "choices") == {
            "id": "chatcmpl-req-1",
            "created": 0,
            "model": "fast",
            "object": "chat.completion.chunk",
        }


JSON_BODIES: dict[str, Json] = {
    "choices an object": {"choices": completion({"content": "Hi"})["choices"][0]},
    "a delta": {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]},
    "a text": {"choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}]},
    "parts": {"choices": [{"message": {"role": None, "content": [{"text": "Hi"}]}}]},
    "no finish": {"choices": [{"message": {"content": "Hi"}, "finish_reason": None}]},
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", JSON_BODIES)
def test_a_whole_reply_in_another_form(name: str, streamed: bool) -> None:
    body = {**completion({"content": "Hi"}), **JSON_BODIES[name]}
    one = attempt(exchange(client_request(stream=streamed)), hold_whole=True)
    one.take_completion(body)
    assert one.settle() is None
    if not streamed:
        assert one.completion() == completion({"content": "Hi"})
        return
    *events, _, _ = one.rest().split(b"\n\n")
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events]
    assert said(chunks) == [({"role": "assistant", "content": "Hi"}, None), ({}, "stop")]


@given(ODD)
def test_no_chunk_is_too_odd(odd: Any) -> None:
    """Neither to be brought into its form, nor for those who count on that."""
    form, reply = ChunkReader("i", "m"), Reply()
    for payload in ({"choices": odd}, {"choices": [odd]}, odd, {**usage_chunk(), "usage": odd}):
        if not isinstance(payload, dict):
            continue
        for delta in ChunkReader("i", "m").read_completion(payload):
            reply.take(delta)
        before = copy.deepcopy(payload)
        formed = check_formed(form.formed(payload))
        assert payload == before
        reply.take(typed(b"", formed))
        raw = data(payload)
        with contextlib.suppress(MalformedChunk):  # JSON has no infinity
            if (read := ChunkReader("i", "m").read(sse.Frame(raw, raw[6:-2]))) is not None:
                check_formed(json.loads(read.raw.removeprefix(b"data: ")))


def check_formed(formed: Json | None) -> Json:
    if formed is None or "error" in formed:
        return formed or {}
    assert {type(formed[key]) for key in ("id", "model", "object")} == {str}
    usage = formed.get("usage")
    assert usage is None or {type(usage[key]) for key in USAGE} == {int}
    for choice in formed["choices"]:
        assert type(choice["index"]) is int
        delta = choice["delta"]
        assert isinstance(delta.get("content"), str | list | dict | None)
        for key in ("refusal", "reasoning", "reasoning_content", "thinking"):
            assert isinstance(delta.get(key), str | None)
        for call in delta.get("tool_calls") or ():
            assert isinstance(call.get("function"), dict | None)
    return formed


def test_choices_that_nobody_may_ask_for_are_left_out() -> None:
    many = [{"index": i, "delta": {"content": "x"}, "finish_reason": None} for i in range(20_000)]
    form = ChunkReader("id", "model")
    formed = form.formed({**CHUNK, "choices": many})
    assert formed is not None
    assert len(formed["choices"]) == MAX_CHOICES
    assert form.formed({**CHUNK, "choices": [many[MAX_CHOICES]]}) is None
    assert len(form.begun) == MAX_CHOICES


def _with(change: Json) -> Json:
    """A chunk of text in form, changed: in its choice, its delta, or at the top."""
    made = copy.deepcopy(A)
    for name in ("role", "content", "reasoning_content", "refusal", "tool_calls"):
        if name in change:
            made["choices"][0]["delta"][name] = change[name]
    for name in ("index", "finish_reason", "logprobs"):
        if name in change:
            made["choices"][0][name] = change[name]
    return {**made, **{name: change[name] for name in ("id", "usage", "error") if name in change}}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"content": ""},
        {"content": "again"},
        {"content": ["parts"]},
        {"role": "assistant"},
        {"reasoning_content": "hm"},
        {"tool_calls": {"function": {"name": "get_weather"}}},
        {"index": 1},
        {"finish_reason": "max_tokens"},
        {"logprobs": "no"},
        {"id": 7},
        {"usage": {"prompt_tokens": 3}},
        {"error": None},
    ],
    ids=str,
)
def test_a_chunk_in_form_is_read_as_one_that_is_brought_into_form(change: Json) -> None:
    def read(*payloads: Json, strict: bool) -> list[Any]:
        """``strict``: whether a chunk that is in form already is decoded in one step."""
        reader, found = ChunkReader("x", "m"), []
        for payload in payloads:
            raw = data(payload)
            frame = sse.Frame(raw, raw[6:-2])
            delta = reader.read(frame) if strict else reader._read_other(frame, raw[6:-2])
            if delta is not None:
                reply = Reply()
                reply.take(delta)
                said = [(one.text, one.reasoning, one.tool_calls) for one in reply.choices.values()]
                found.append((delta.raw, delta.kinds, said, reply.usage, delta.error))
        return found

    stream = [ROLE, A, B, _with(change), A, END]
    assert read(*stream, strict=True) == read(*stream, strict=False)


def test_parts_that_are_no_text_stay_what_they_are() -> None:
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    assert out(ROLE, chunk({"content": image}), END)[1] == chunk({"content": image})


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
def test_a_reply_that_its_server_broke_off_is_none(reason: str) -> None:
    one = attempt()
    one.feed(b"".join(map(data, [ROLE, A, chunk({}, reason)])))
    assert one.verdict is not None


def test_the_names_of_another_api_are_its_counts() -> None:
    usage = {"input_tokens": 9, "output_tokens": 4}
    assert out(ROLE, A, END, usage_chunk(usage))[3]["usage"] == {**usage, **USAGE}
