"""What chunks mean, in all the spellings that servers use."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_stack_proxy.wire.chunk_form import ChunkForm
from mlx_stack_proxy.wire.chunks import (
    NOTHING,
    Chunk,
    MalformedChunk,
    read_events,
    read_frame,
    text_of,
)
from mlx_stack_proxy.wire.events import (
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UpstreamErrorEvent,
    Usage,
)
from mlx_stack_proxy.wire.sse import Frame, data_frame
from tests.support.replies import Json, chunk, data


def form() -> ChunkForm:
    return ChunkForm("id", "model")


def events_of(payload: dict[str, Any]) -> list[Event]:
    return read_events(form().formed(payload) or {})


def read(data: bytes) -> Chunk:
    return read_frame(Frame(data_frame(data), data), form())


@pytest.mark.parametrize(
    ("delta", "events"),
    [
        ({"role": "assistant"}, []),
        ({"role": "assistant", "content": ""}, []),
        ({"content": None}, []),
        ({"content": "hi"}, [TextDelta(0, "hi")]),
        ({"content": [{"type": "text", "text": "hi"}, " you"]}, [TextDelta(0, "hi you")]),
        ({"content": "hi", "role": "assistant"}, [TextDelta(0, "hi")]),
        ({"reasoning": "so"}, [ReasoningDelta(0, "so")]),
        ({"reasoning_content": "so"}, [ReasoningDelta(0, "so")]),
        ({"thinking": "so"}, [ReasoningDelta(0, "so")]),
        ({"reasoning": {"effort": 1}}, []),
        # LiteLLM sends one thought in two fields: it counts once.
        ({"reasoning": "so", "reasoning_content": "so"}, [ReasoningDelta(0, "so")]),
        ({"reasoning": "", "thinking": "so"}, [ReasoningDelta(0, "so")]),
        ({"reasoning": "so", "content": "hi"}, [ReasoningDelta(0, "so"), TextDelta(0, "hi")]),
        ({"refusal": "no"}, [RefusalDelta(0, "no")]),
        ({"content": "hi", "refusal": "no"}, [TextDelta(0, "hi"), RefusalDelta(0, "no")]),
        ({"tool_calls": []}, []),
        ({"tool_calls": None}, []),
        ({"tool_calls": [None, 3]}, []),
        (
            {"tool_calls": [{"index": 2, "id": "i", "function": {"name": "f", "arguments": "{"}}]},
            [ToolCallDelta(0, 2, "i", "f", "{", odd=True)],  # it has no type
        ),
        (
            {"tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "g"}}]},
            [
                ToolCallDelta(0, 0, "", "f", "", odd=True),
                ToolCallDelta(0, 1, "", "g", "", odd=True),
            ],
        ),
        (
            {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
            [ToolCallDelta(0, 0, "", "f", '{"a":1}', was_object=True, odd=True)],
        ),
        (
            {"tool_calls": [{"index": 0, "type": "function", "function": {"name": "f"}}]},
            [ToolCallDelta(0, 0, "", "f", "")],
        ),
        (
            {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
            [ToolCallDelta(0, 0, "", "", "{")],
        ),
        (
            {"tool_calls": [{"index": 0, "function": None}]},
            [ToolCallDelta(0, 0, "", "", "", odd=True)],
        ),
        ({"function_call": {"name": "f"}}, [ToolCallDelta(0, 0, "", "f", "")]),
        ({"function_call": {"arguments": "{}"}}, [ToolCallDelta(0, 0, "", "", "{}")]),
    ],
)
def test_a_delta_is_these_events(delta: dict[str, Any], events: list[Event]) -> None:
    assert events_of(chunk(delta)) == events


def test_a_finish_comes_after_what_it_finishes() -> None:
    assert events_of(chunk({"content": "a"}, "stop", index=1)) == [
        TextDelta(1, "a"),
        Finish(1, "stop"),
    ]
    assert events_of(chunk({}, "")) == []


@pytest.mark.parametrize(
    ("usage", "event"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 4}, Usage(9, 4)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 5}}, Usage(9, 0, 5)),
        ({"prompt_tokens": None, "completion_tokens": -1}, Usage(0, 0)),
        ({"prompt_tokens": "9", "prompt_tokens_details": None}, Usage(9, 0)),
    ],
)
def test_usage(usage: dict[str, Any], event: Usage) -> None:
    payload = {"choices": [], "usage": usage}
    assert events_of(payload) == [event]
    assert events_of({"choices": [], "usage": None}) == []


@pytest.mark.parametrize(
    ("error", "event"),
    [
        ("out of memory", UpstreamErrorEvent("out of memory", "error", None)),
        ({"message": "m", "type": "t", "code": 500}, UpstreamErrorEvent("m", "t", "500")),
        ({"message": "m", "type": None}, UpstreamErrorEvent("m", "error", None)),
        ({"detail": "m"}, UpstreamErrorEvent("", "error", None)),
    ],
)
def test_an_error_inside_the_stream(error: Any, event: UpstreamErrorEvent) -> None:
    assert events_of({"error": error}) == [event]


@pytest.mark.parametrize("data", [b"[DONE]", b" [DONE] "])
def test_done(data: bytes) -> None:
    got = read(data)
    assert got.done and got.raw == b"data: [DONE]\n\n"  # no client knows it by another spelling


@pytest.mark.parametrize("comment", [b": keepalive 1/2\n\n", b': x-mlx-stack {"tier": "best"}\n\n'])
def test_comments_mean_nothing_and_are_left_out(comment: bytes) -> None:
    assert read_frame(Frame(comment, None), form()) is NOTHING


@pytest.mark.parametrize(
    "empty",
    [
        chunk({}),
        chunk({"content": ""}),
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": None, "tool_calls": [], "reasoning": ""}, logprobs=None),
        chunk({"content": ""}, index=-1),
        {**chunk({"role": "assistant"}), "mlx_stack": {"tier": "best"}},
    ],
    ids=str,
)
def test_only_the_first_empty_chunk_of_a_choice_says_anything(empty: Json) -> None:
    one = form()
    first = read_frame(Frame(data(empty), json.dumps(empty).encode()), one)
    assert first.payload is not None
    assert first.payload["choices"][0]["delta"]["role"] == "assistant"
    for _ in range(2):
        assert read_frame(Frame(data(empty), json.dumps(empty).encode()), one) is NOTHING


@pytest.mark.parametrize(
    "more",
    [
        {"citations": ["https://example.org"]},
        {"choices": [], "prompt_filter_results": [{"index": 0}]},
        {"choices": [{"index": 0, "delta": {}, "content_filter_results": {"hate": {}}}]},
        {"choices": [{"index": 0, "delta": {}, "logprobs": {"content": [{"token": "a"}]}}]},
        {"choices": [{"index": 0, "delta": {"annotations": [{}]}}]},
    ],
    ids=str,
)
def test_a_chunk_without_text_that_says_something_stays(more: Json) -> None:
    one = form()
    read_frame(Frame(b"", json.dumps(chunk({"role": "assistant"})).encode()), one)
    odd = {**chunk({}), **more}
    raw = data(odd)
    assert read_frame(Frame(raw, json.dumps(odd).encode()), one).raw == raw


def test_what_is_ours_alone_is_taken_out_of_a_servers_chunk() -> None:
    forged = {**chunk({"content": "a"}), "mlx_stack": {"tier": "best"}}
    one = form()
    for _ in range(3):
        got = read_frame(Frame(data(forged), json.dumps(forged).encode()), one)
        assert b"mlx_stack" not in got.raw
        assert got.payload is not None
        assert "mlx_stack" not in got.payload


@pytest.mark.parametrize("data", [b"", b"  "])
def test_empty_data_is_left_out(data: bytes) -> None:
    """OpenAI's SDKs take it for broken JSON."""
    got = read(data)
    assert (got.raw, got.payload, list(got.events), got.done) == (b"", None, [], False)


@pytest.mark.parametrize("data", [b"{", b"[]", b"null", b"7", b"DONE", b'{"a": NaN}', b"\xff"])
def test_what_is_no_object_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedChunk):
        read(data)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}, "b", 3], "ab"),
        (None, ""),
        ({"text": "a"}, ""),
    ],
)
def test_the_text_of_a_content(content: Any, text: str) -> None:
    assert text_of(content) == text
