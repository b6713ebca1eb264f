"""Chunks put together are exactly what a server that does not stream would have sent."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.wire.chunk_form import ChunkForm
from mlx_stack_proxy.wire.chunks import chunks_of_completion
from mlx_stack_proxy.wire.completion import CompletionBuilder
from tests.support.replies import KINDS, LINK, USAGE, chunk, usage_chunk

Json = dict[str, Any]
TEXT = st.text(max_size=12)
SCALAR = st.booleans() | st.integers(-9, 9) | TEXT
FUNCTION = st.fixed_dictionaries({"name": st.text(min_size=1, max_size=5), "arguments": TEXT})
CALL = st.fixed_dictionaries(
    {"id": st.text(min_size=1, max_size=5), "type": st.just("function"), "function": FUNCTION}
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.none() | st.text(min_size=1, max_size=20)},
    optional={
        "reasoning": TEXT,
        "reasoning_content": TEXT,
        "thinking": TEXT,
        "refusal": st.none() | TEXT,
        "annotations": st.just([LINK]),
        "tool_calls": st.lists(CALL, min_size=1, max_size=3),
        "function_call": FUNCTION,
        "provider_specific_fields": st.dictionaries(TEXT, SCALAR, max_size=2),
        "audio": st.just({"id": "a1", "data": "UklG", "expires_at": 1}),
        "mood": SCALAR,
    },
)
CHOICE = st.fixed_dictionaries(
    {
        "message": MESSAGE,
        "finish_reason": st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
    },
    optional={
        "logprobs": st.none() | st.just({"content": [{"token": "a", "logprob": -0.5}]}),
        "stop_reason": st.none() | st.integers(0, 9),
        "content_filter_results": st.just({"hate": {"filtered": False}}),
    },
)
COMPLETION = st.fixed_dictionaries(
    {
        "id": st.text(min_size=1, max_size=12),
        "object": st.just("chat.completion"),
        "created": st.integers(0, 2**31),
        "model": st.text(min_size=1, max_size=12),
        "choices": st.lists(CHOICE, min_size=1, max_size=3),
    },
    optional={
        "usage": st.just({**USAGE, "completion_tokens_details": {"reasoning_tokens": 1}}),
        "system_fingerprint": st.none() | TEXT,
        "service_tier": TEXT,
        "region": SCALAR | st.lists(SCALAR, max_size=2),
    },
)


def built(payloads: list[Json]) -> Json:
    builder, form = CompletionBuilder(), ChunkForm("id", "model")
    for payload in payloads:
        if formed := form.formed(payload):
            builder.add(formed)
    return builder.build()


def with_indices(completion: Json) -> Json:
    """Number the choices; a choice with calls ends for them, as OpenAI's do."""
    choices = [{"index": at, **choice} for at, choice in enumerate(completion["choices"])]
    for choice in choices:
        if choice["message"].get("tool_calls") and choice["finish_reason"] == "stop":
            choice["finish_reason"] = "tool_calls"
    return {**completion, "choices": choices}


@given(COMPLETION.map(with_indices))
def test_a_completion_cut_into_chunks_and_put_together_is_itself(completion: Json) -> None:
    before = copy.deepcopy(completion)
    builder = CompletionBuilder()
    for one in chunks_of_completion(completion, ChunkForm("id", "model")):
        builder.add(one.payload or {})
    assert builder.build() == before
    assert completion == before


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_built_exactly(name: str) -> None:
    kind = KINDS[name]
    payloads = copy.deepcopy([*kind.chunks, usage_chunk()])
    whole = built(payloads)
    assert whole == kind.completion
    assert payloads == [*kind.chunks, usage_chunk()]  # the chunks are left as they were


@given(st.lists(st.text(max_size=5), min_size=1, max_size=20))
def test_texts_are_joined_wherever_they_are(texts: list[str]) -> None:
    deltas = [
        {
            "content": text,
            "reasoning": text,
            "refusal": text,
            "own": text,
            "pieces": [text],
            "nested": {"deep": {"own": text}},
            "function_call": {"name": "f", "arguments": text},
            "tool_calls": [{"index": 0, "function": {"arguments": text}}],
        }
        for text in texts
    ]
    (choice,) = built([chunk(delta, beside=delta["own"]) for delta in deltas])["choices"]
    message, whole = choice["message"], "".join(texts)
    assert message["pieces"] == texts
    for found in (
        choice["beside"],
        message["reasoning"],
        message["refusal"],
        message["own"],
        message["nested"]["deep"]["own"],
        message["function_call"]["arguments"],
        message["tool_calls"][0]["function"]["arguments"],
    ):
        assert found == whole


@pytest.mark.parametrize("null", [None, []])
def test_null_calls_before_the_first_piece_are_none(null: Any) -> None:
    first = chunk({"role": "assistant", "tool_calls": null, "function_call": None})
    pieces = [
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": None}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}),
        chunk({"tool_calls": null}, "tool_calls"),
    ]
    message = built([first, *pieces])["choices"][0]["message"]
    assert message["tool_calls"] == [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]


def test_calls_in_the_order_of_their_indices() -> None:
    calls = [{"index": at, "function": {"name": f"f{at}"}} for at in (2, 0, 1)]
    message = built([chunk({"tool_calls": calls})])["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["f0", "f1", "f2"]


@pytest.mark.parametrize(
    ("delta", "content"),
    [
        ({}, None),
        ({"content": ""}, ""),
        ({"content": None}, None),
        ({"content": "", "tool_calls": [{"index": 0, "function": {"name": "f"}}]}, None),
        ({"content": "", "function_call": {"name": "f"}}, None),
    ],
)
def test_the_content_of_a_reply_without_text(delta: Json, content: str | None) -> None:
    assert built([chunk(delta)])["choices"][0]["message"]["content"] == content


def test_the_last_word_counts_for_what_is_no_text() -> None:
    first = {**chunk({"content": "a"}), "system_fingerprint": "fp", "score": 1}
    second = {**chunk({}, "stop"), "system_fingerprint": None, "score": 2}
    whole = built([first, second])
    assert (whole["system_fingerprint"], whole["score"]) == ("fp", 2)


def test_an_empty_id_in_a_later_piece_is_no_id() -> None:
    whole = {"index": 0, "id": "call_1", "type": "function"}
    function = {"name": "look", "arguments": '{"a":'}
    first = chunk({"tool_calls": [{**whole, "function": function}]})
    more = {"index": 0, "id": "", "type": "", "function": {"name": "", "arguments": "1}"}}
    second = chunk({"tool_calls": [more]}, "tool_calls")
    [call] = built([first, second])["choices"][0]["message"]["tool_calls"]
    function = {"name": "look", "arguments": '{"a":1}'}
    assert call == {"id": "call_1", "type": "function", "function": function}


def test_pieces_that_were_put_together_meanwhile_are_gone_on_with() -> None:
    """What names something is not joined."""
    call = {"index": 1, "id": "a", "type": "function", "function": {"name": "f", "arguments": "x"}}
    delta = {"role": "assistant", "content": "x", "tool_calls": [call]}
    message = built([chunk(delta)] * 1000)["choices"][0]["message"]
    [made] = message["tool_calls"]
    assert (message["content"], made["function"]["arguments"]) == ("x" * 1000, "x" * 1000)
    named = (message["role"], made["type"], made["id"], made["function"]["name"])
    assert named == ("assistant", "function", "a", "f")
