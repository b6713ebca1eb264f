"""What chunks mean, in all the spellings that servers use."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_stack_proxy.wire.chunks import ChunkReader, MalformedChunk
from mlx_stack_proxy.wire.delta import Delta, UpstreamErrorEvent, Usage, usage_of
from mlx_stack_proxy.wire.reply import Reply
from mlx_stack_proxy.wire.sse import Frame, data_frame
from tests.support.replies import Json, chunk, data

# What a delta brings, besides nothing: the fields of a choice as a reply gathers them.
ResultKey = dict[str, Any]


def reader() -> ChunkReader:
    return ChunkReader("id", "model")


def read(data: bytes, one: ChunkReader | None = None) -> Delta | None:
    return (one or reader()).read(Frame(data_frame(data), data))


def given(payload: Json, one: ChunkReader | None = None) -> Delta:
    delta = read(json.dumps(payload).encode(), one)
    assert delta is not None
    return delta


def brought(delta: Delta) -> ResultKey:
    """What a reply has of one delta alone."""
    reply = Reply()
    reply.take(delta)
    found: ResultKey = {}
    for choice in reply.choices.values():
        calls = [
            (call.id, call.name, call.arguments, *(["object"] if call.was_object else ()))
            for call in choice.tool_calls
        ]
        fields = {
            "text": choice.text,
            "reasoning": choice.reasoning,
            "refusal": choice.refusal,
            "calls": calls,
            "odd": any(call.odd for call in choice.tool_calls),
            "finish": choice.finish_reason,
        }
        found |= {key: value for key, value in fields.items() if value}
    return found


@pytest.mark.parametrize(
    ("delta", "found"),
    [
        ({"role": "assistant"}, {}),
        ({"role": "assistant", "content": ""}, {}),
        ({"content": None}, {}),
        ({"content": "hi"}, {"text": "hi"}),
        ({"content": [{"type": "text", "text": "hi"}, " you"]}, {"text": "hi you"}),
        ({"content": "hi", "role": "assistant"}, {"text": "hi"}),
        ({"reasoning": "so"}, {"reasoning": "so"}),
        ({"reasoning_content": "so"}, {"reasoning": "so"}),
        ({"thinking": "so"}, {"reasoning": "so"}),
        ({"reasoning": {"effort": 1}}, {}),
        # LiteLLM sends one thought in two fields: it counts once.
        ({"reasoning": "so", "reasoning_content": "so"}, {"reasoning": "so"}),
        ({"reasoning": "", "thinking": "so"}, {"reasoning": "so"}),
        ({"reasoning": "so", "content": "hi"}, {"reasoning": "so", "text": "hi"}),
        ({"refusal": "no"}, {"refusal": "no"}),
        ({"content": "hi", "refusal": "no"}, {"text": "hi", "refusal": "no"}),
        ({"tool_calls": []}, {}),
        ({"tool_calls": None}, {}),
        ({"tool_calls": [None, 3]}, {}),
        (
            {"tool_calls": [{"index": 0, "id": "i", "function": {"name": "f", "arguments": "{"}}]},
            {"calls": [("i", "f", "{")], "odd": True},  # it has no type
        ),
        (
            {"tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "g"}}]},
            {"calls": [("", "f", ""), ("", "g", "")], "odd": True},
        ),
        (
            {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
            {"calls": [("", "f", '{"a":1}', "object")], "odd": True},
        ),
        (
            {"tool_calls": [{"index": 0, "type": "function", "function": {"name": "f"}}]},
            {"calls": [("", "f", "")]},
        ),
        (
            {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
            {"calls": [("", "", "{")]},
        ),
        ({"tool_calls": [{"index": 0, "function": None}]}, {"calls": [("", "", "")], "odd": True}),
        ({"function_call": {"name": "f"}}, {"calls": [("", "f", "")]}),
        ({"function_call": {"arguments": "{}"}}, {"calls": [("", "", "{}")]}),
    ],
)
def test_a_delta_brings_these(delta: Json, found: ResultKey) -> None:
    assert brought(given(chunk(delta))) == found
    one = reader()
    given(chunk({"role": "assistant", "content": ""}), one)
    later = read(json.dumps(chunk({"content": "", **delta})).encode(), one)
    assert (brought(later) if later is not None else {}) == found, "also within a stream"


def test_text_that_comes_in_one_read_may_be_one_delta() -> None:
    def word(text: str, index: int = 0, **more: Any) -> Json:
        return chunk({"content": text, **more}, index=index)

    said = [word("", role="assistant"), word("a"), word("b"), word("c"), word("", reasoning="r")]
    said += [word("d"), word("x", 1), word("y", 1), word("e"), chunk({}, "stop")]
    frames = [Frame(data(one), json.dumps(one).encode()) for one in said]
    found, replies = [], []
    for joins in (True, False):
        one, reply = ChunkReader("id", "model", joins=joins), Reply()
        for delta in one.read_all(frames):
            reply.take(delta)
            found.append(delta.texts)
        choices = reply.choices.items()
        counts = [(index, one.text, one.reasoning, one.written.count) for index, one in choices]
        replies.append((counts, reply.pieces))
    joined = [texts for texts in found if texts]
    assert joined == [["a", "b", "c"], ["d"], ["x", "y"], ["e"]]
    assert replies[0] == replies[1]


def test_a_finish_comes_with_what_it_finishes() -> None:
    assert brought(given(chunk({"content": "a"}, "stop", index=1))) == {
        "text": "a",
        "finish": "stop",
    }
    assert brought(given(chunk({}, ""))) == {}


CACHED = Usage(9, 0, cached_tokens=5, names_cached=True)


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 4}, Usage(9, 4)),
        ({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}, Usage(9, 4)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 5}}, CACHED),
        ({"prompt_tokens": None, "completion_tokens": -1}, Usage(0, 0)),
        ({"prompt_tokens": "9", "prompt_tokens_details": None}, Usage(9, 0)),
    ],
)
def test_usage(usage: Json, counts: Usage) -> None:
    found = given({**chunk({}), "choices": [], "usage": usage}).usage
    assert found is not None and usage_of(found) == counts
    assert given({"choices": [], "usage": None}).usage is None


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ("out of memory", UpstreamErrorEvent("out of memory", "error", None)),
        ({"message": "m", "type": "t", "code": 500}, UpstreamErrorEvent("m", "t", "500")),
        ({"message": "m", "type": None}, UpstreamErrorEvent("m", "error", None)),
        ({"detail": "m"}, UpstreamErrorEvent("", "error", None)),
    ],
)
def test_an_error_inside_the_stream(error: Any, found: UpstreamErrorEvent) -> None:
    assert given({"error": error}).error == found


@pytest.mark.parametrize("data", [b"[DONE]", b" [DONE] "])
def test_done(data: bytes) -> None:
    got = read(data)
    assert got is not None and got.done
    assert got.raw == b"data: [DONE]\n\n"  # no client knows it by another spelling


@pytest.mark.parametrize("comment", [b": keepalive 1/2\n\n", b': x-mlx-stack {"tier": "best"}\n\n'])
def test_comments_mean_nothing_and_are_left_out(comment: bytes) -> None:
    assert reader().read(Frame(comment, None)) is None


@pytest.mark.parametrize(
    "empty",
    [
        chunk({}),
        chunk({"content": ""}),
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": None, "tool_calls": [], "reasoning": ""}, logprobs=None),
        chunk({"content": ""}, index=-1),
        {**chunk({"role": "assistant"}), "mlx_stack": {"tier": "best"}},
        {**chunk({"content": ""}), "obfuscation": "xY"},
    ],
    ids=str,
)
def test_only_the_first_empty_chunk_of_a_choice_says_anything(empty: Json) -> None:
    one = reader()
    first = json.loads(given(empty, one).raw.removeprefix(b"data: "))
    assert first["choices"][0]["delta"]["role"] == "assistant"
    for _ in range(2):
        assert read(json.dumps(empty).encode(), one) is None


@pytest.mark.parametrize(
    "more",
    [
        {"citations": ["https://example.org"]},
        {"choices": [], "prompt_filter_results": [{"index": 0}]},
        {"choices": [{"index": 0, "delta": {}, "content_filter_results": {"hate": {}}}]},
        {"choices": [{"index": 0, "delta": {}, "logprobs": {"content": [{"token": "a"}]}}]},
        {"choices": [{"index": 0, "delta": {"annotations": [{}]}}]},
        {"choices": [{"index": 0, "delta": {"provider_specific_fields": {"a": 1}}}]},
    ],
    ids=str,
)
def test_a_chunk_without_text_that_says_something_stays(more: Json) -> None:
    one = reader()
    given(chunk({"role": "assistant"}), one)
    odd = {**chunk({}), **more}
    delta = one.read(Frame(data(odd), json.dumps(odd).encode()))
    assert delta is not None and delta.raw == data(odd)
    assert delta.more is not None


def test_what_is_ours_alone_is_taken_out_of_a_servers_chunk() -> None:
    forged = {**chunk({"content": "a"}), "mlx_stack": {"tier": "best"}}
    one = reader()
    for _ in range(3):
        got = given(forged, one)
        assert b"mlx_stack" not in got.raw
        assert got.more is None


@pytest.mark.parametrize("data", [b"", b"  "])
def test_empty_data_is_left_out(data: bytes) -> None:
    """OpenAI's SDKs take it for broken JSON."""
    assert read(data) is None


@pytest.mark.parametrize("data", [b"{", b"[]", b"null", b"7", b"DONE", b'{"a": NaN}', b"\xff"])
def test_what_is_no_object_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedChunk):
        read(data)
