"""A reply as clients of chat completions get it: whole, or the rest of a stream written anew."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.wire.call import Call
from mlx_stack_proxy.wire.chat import ChatRenderer
from mlx_stack_proxy.wire.chunks import ChunkReader
from mlx_stack_proxy.wire.delta import Delta
from mlx_stack_proxy.wire.reply import Reply
from mlx_stack_proxy.wire.sse import Frame
from tests.support.messages import call_piece
from tests.support.replies import KINDS, LINK, TOP, USAGE, chunk, data, usage_chunk

Json = dict[str, Any]
TEXT = st.text(min_size=1, max_size=12)
SCALAR = st.booleans() | st.integers(-9, 9) | TEXT
FUNCTION = st.fixed_dictionaries({"name": st.text(min_size=1, max_size=5), "arguments": TEXT})
CALL = st.fixed_dictionaries(
    {"id": st.text(min_size=1, max_size=5), "type": st.just("function"), "function": FUNCTION},
    optional={"extra_content": st.just({"google": {"thought_signature": "x"}})},
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": TEXT},
    optional={
        "reasoning": TEXT,
        "refusal": TEXT,
        "annotations": st.just([LINK]),
        "tool_calls": st.lists(
            CALL, min_size=1, max_size=3, unique_by=lambda call: str(call["id"])
        ),
        "provider_specific_fields": st.dictionaries(TEXT, SCALAR, min_size=1, max_size=2),
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
        "logprobs": st.just({"content": [{"token": "a", "logprob": -0.5}]}),
        "stop_reason": st.integers(0, 9),
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
        "system_fingerprint": TEXT,
        "service_tier": TEXT,
        "region": SCALAR | st.lists(SCALAR, max_size=2),
    },
)


class Written:
    """A reply of which all is held, and its renderer."""

    def __init__(self, *, streams: bool = True, identity: Json | None = None) -> None:
        self.reader = ChunkReader("id", "model")
        self.reply = Reply()
        self.renderer = ChatRenderer(
            self.reader.top,
            identity or {},
            streams=streams,
            include_usage=True,
            legacy_functions=False,
        )

    def read(self, payload: Json) -> Delta | None:
        raw = data(payload)
        delta = self.reader.read(Frame(raw, raw[6:-2]))
        if delta is not None:
            self.reply.take(delta)
        return delta

    def hold(self, *payloads: Json) -> Written:
        for payload in payloads:
            if (delta := self.read(payload)) is not None:
                self.renderer.hold(delta)
        return self

    def flow(self, payload: Json) -> bytes:
        delta = self.read(payload)
        assert delta is not None
        self.reply.release(delta)
        return self.renderer.release(delta)

    def mend(self, text: str, *calls: Call) -> list[Json]:
        choice = self.reply.choices[0]
        choice.text, choice.tool_calls = text, list(calls)
        choice.finish_reason = "tool_calls" if calls else choice.finish_reason
        self.reply.mended.add(0)
        return self.rest()

    def rest(self) -> list[Json]:
        *frames, done, end = self.renderer.rest(self.reply).split(b"\n\n")
        assert (done, end) == (b"data: [DONE]", b"")
        return [json.loads(frame.removeprefix(b"data: ")) for frame in frames]


def built(payloads: list[Json]) -> Json:
    one = Written(streams=False).hold(*payloads)
    return one.renderer.whole(one.reply)


def with_indices(completion: Json) -> Json:
    """Number the choices; a choice with calls ends for them, as OpenAI's do."""
    choices = [{"index": at, **choice} for at, choice in enumerate(completion["choices"])]
    for choice in choices:
        if choice["message"].get("tool_calls") and choice["finish_reason"] == "stop":
            choice["finish_reason"] = "tool_calls"
    return {**completion, "choices": choices}


@given(COMPLETION.map(with_indices))
def test_a_completion_read_and_written_is_itself(completion: Json) -> None:
    before = copy.deepcopy(completion)
    one = Written(streams=False)
    for delta in one.reader.read_completion(completion):
        one.reply.take(delta)
        one.renderer.hold(delta)
    assert one.renderer.whole(one.reply) == before
    assert completion == before


@pytest.mark.parametrize("name", [name for name in KINDS if name != "function_call"])
def test_every_kind_is_built_exactly(name: str) -> None:
    kind = KINDS[name]
    payloads = copy.deepcopy([*kind.chunks, usage_chunk()])
    assert built(payloads) == kind.completion
    assert payloads == [*kind.chunks, usage_chunk()]  # the chunks are left as they were


def test_a_call_in_the_older_form_is_one_of_the_newer() -> None:
    """A client that asked in the older form gets it in that form again."""
    function = KINDS["function_call"].completion["choices"][0]["message"]["function_call"]
    whole = built([*KINDS["function_call"].chunks, usage_chunk()])
    message = whole["choices"][0]["message"]
    assert message["tool_calls"] == [{"type": "function", "function": function}]


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
            "tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": text}}],
        }
        for text in texts
    ]
    (choice,) = built([chunk(delta, beside=delta["own"]) for delta in deltas])["choices"]
    message, whole = choice["message"], "".join(texts)
    assert message["pieces"] == texts
    for found in (
        choice["beside"],
        message.get("reasoning", ""),
        message.get("refusal", ""),
        message["own"],
        message["nested"]["deep"]["own"],
        message["tool_calls"][0]["function"]["arguments"],
    ):
        assert found == whole


@pytest.mark.parametrize(
    ("delta", "content"),
    [
        ({"reasoning": "Hm."}, ""),
        ({"tool_calls": [{"index": 0, "function": {"name": "f"}}]}, None),
        ({"refusal": "No."}, None),
    ],
)
def test_the_content_of_a_reply_without_text(delta: Json, content: str | None) -> None:
    assert built([chunk(delta)])["choices"][0]["message"]["content"] == content


def test_the_last_word_counts_for_what_is_no_text() -> None:
    first = {**chunk({"content": "a"}), "system_fingerprint": "fp", "score": 1}
    second = {**chunk({}, "stop"), "system_fingerprint": None, "score": 2}
    whole = built([first, second])
    assert (whole["system_fingerprint"], whole["score"]) == ("fp", 2)


# What was mended

CALLED = Call("search", '{"query": "x"}', "call_9")


def call_chunk(call: Call = CALLED, place: int = 0) -> Json:
    return chunk(call_piece(call.name, call.arguments, call.id, place))


def test_text_becomes_a_call_just_before_the_finish() -> None:
    one = Written().hold(
        chunk({"role": "assistant", "content": "On it. <tool"}),
        chunk({"content": "_call>…"}),
        chunk({}, "stop"),
        usage_chunk(),
    )
    assert one.mend("On it. ", CALLED) == [
        chunk({"role": "assistant"}),
        chunk({"content": "On it. "}),
        call_chunk(),
        chunk({}, "tool_calls"),
        usage_chunk(),
    ]


def test_what_has_flowed_is_not_said_again() -> None:
    one = Written()
    one.flow(chunk({"role": "assistant", "reasoning_content": "Hm."}))
    one.flow(chunk({"content": "On it. "}))
    one.hold(chunk({"content": "<tool_call>…"}), chunk({}, "stop"))
    assert one.mend("On it. ", CALLED) == [call_chunk(), chunk({}, "tool_calls")]


def test_further_fields_of_what_was_held_are_kept() -> None:
    one = Written().hold(
        chunk({"role": "assistant", "reasoning_content": "Hm."}, token=7),
        {**chunk({"content": "<tool_call>", "mood": "so"}), "region": "north"},
        chunk({"content": "…", "mood": "ber"}, "stop", stop_token=2),
    )
    role, call, end = one.mend("", CALLED)
    delta = {"role": "assistant", "reasoning_content": "Hm.", "mood": "sober"}
    assert role == chunk(delta)
    assert call == call_chunk()
    assert end == {**chunk({}, "tool_calls", token=7, stop_token=2), "region": "north"}


def test_calls_go_out_whole_and_numbered_with_what_their_pieces_had() -> None:
    signed = {"index": 0, "id": "x", "type": "function", "extra_content": {"signature": "s"}}
    one = Written().hold(
        chunk({"tool_calls": [{**signed, "function": {"name": "search", "arguments": "{"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}),
        chunk({}, "tool_calls"),
    )
    (came,) = one.reply.choices[0].tool_calls
    _, first, second, _ = one.mend("", came, CALLED)
    (piece,) = first["choices"][0]["delta"]["tool_calls"]
    assert piece == {**signed, "function": {"name": "search", "arguments": "{}"}}
    assert second == call_chunk(CALLED, 1)


def test_what_nobody_changed_is_held_as_the_bytes_that_came() -> None:
    payloads = [chunk({"content": "x" * 500}) for _ in range(1_000)]
    one = Written()
    frames = [one.flow(chunk({"role": "assistant", "content": ""})), *map(data, payloads)]
    one.hold(*payloads, chunk({}, "stop"))
    rest = one.renderer.rest(one.reply)
    assert rest == b"".join([*frames[1:], data(chunk({}, "stop")), b"data: [DONE]\n\n"])


def test_reasoning_of_a_second_attempt_is_left_out() -> None:
    identity = {"id": "first", "created": 1}
    one = Written(identity=identity).hold(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Hm."}),
        chunk({"reasoning": "Hm.", "content": "Yes."}),
        chunk({}, "stop"),
        usage_chunk(),
    )
    assert one.rest() == [
        {**payload, **identity}
        for payload in (chunk({"content": "Yes."}), chunk({}, "stop"), usage_chunk())
    ]


def test_so_is_that_of_a_reply_that_was_mended() -> None:
    one = Written(identity={"id": "first", "created": 1}).hold(
        chunk({"role": "assistant", "reasoning_content": "Hm.", "reasoning_details": [{}]}),
        chunk({"content": "Yes"}, "stop"),
    )
    deltas = [payload["choices"][0]["delta"] for payload in one.mend("Yes.")]
    assert deltas == [{"content": "Yes."}, {}]


def test_an_earlier_attempt_goes_on_in_the_stream_of_another() -> None:
    one = Written().hold(chunk({"role": "assistant", "content": "a"}), chunk({}, "stop"))
    one.renderer.continue_stream({"id": TOP["id"], "created": TOP["created"]})
    assert [payload["id"] for payload in one.rest()] == [TOP["id"]] * 2
    other = Written().hold(chunk({"role": "assistant", "content": "a"}), chunk({}, "stop"))
    other.renderer.continue_stream({"id": "first", "created": 1})
    assert [payload["id"] for payload in other.rest()] == ["first"] * 3
