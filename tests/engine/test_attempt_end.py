"""The end of a reply: its usage, its notes, and the form in which the client wants it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_stack_proxy.engine import attempt as attempt_module
from mlx_stack_proxy.engine import client_request as client_request_module
from mlx_stack_proxy.engine.verdicts import Failure, InvalidToolCall
from mlx_stack_proxy.wire import sse
from mlx_stack_proxy.wire.reply import MAX_CALLS
from tests.engine.exchanges import attempt, client_request, completion_of, exchange, relayed
from tests.support.replies import (
    DONE,
    KINDS,
    USAGE,
    chunk,
    completion,
    data,
    stream_bytes,
    usage_chunk,
    with_role,
)
from tests.tool_validation.tool_replies import TOOLS, stage

Json = dict[str, Any]


# Usage, as the client asked for it


def test_usage_is_left_out_where_it_was_not_asked_for() -> None:
    chunks = [chunk({"content": "a"}), {**chunk({}, "stop"), "usage": USAGE}]
    asked = exchange(client_request(include_usage=False))
    out = relayed(attempt(asked), [stream_bytes(chunks)])
    assert b"usage" not in out
    assert json.loads(out.split(b"\n\n")[1].removeprefix(b"data: ")) == chunk({}, "stop")
    assert out.endswith(DONE)


@pytest.mark.parametrize(
    "choices",
    [[], [{"index": 0, "delta": {}}], [{"index": 0, "delta": {}, "finish_reason": None}]],
    ids=str,
)
def test_a_chunk_of_usage_alone_is_left_out_whole(choices: list[Json]) -> None:
    """LiteLLM 1.106 sends a bare choice with it."""
    chunks = [chunk({"role": "assistant", "content": "a"}), chunk({}, "stop")]
    asked = exchange(client_request(include_usage=False))
    out = relayed(attempt(asked), [stream_bytes([*chunks, {**usage_chunk(), "choices": choices}])])
    assert out == stream_bytes(chunks, usage=False)


@pytest.mark.parametrize("name", KINDS)
def test_a_json_answer_is_relayed_assembled_and_streamed(name: str) -> None:
    kind, legacy = KINDS[name], name == "function_call"
    more = {**(kind.request or {}), "legacy_functions": legacy}
    asked = client_request(stream=False, include_usage=False, **more)
    whole = attempt(exchange(asked), hold_whole=True)
    whole.take_completion(kind.completion)
    assert whole.done and whole.settle() is None
    assert whole.completion() == kind.completion
    streamed = attempt(exchange(client_request(**more)))
    streamed.take_completion(kind.completion)
    assert completion_of(streamed.rest(), **more) == kind.completion


@pytest.mark.parametrize("depth", [300, 900])
def test_a_reply_nested_too_deeply_to_be_written(depth: int) -> None:
    """It fails as a broken reply does; to a client that streams the same bytes are no trouble."""
    deep = json.loads("[" * depth + "]" * depth)
    first = chunk({"role": "assistant", "content": "Hi", "odd": deep})
    stream = stream_bytes([first, chunk({}, "stop")])
    one = attempt(exchange(client_request(stream=False)), hold_whole=True)
    one.feed(stream)
    assert isinstance(one.verdict, Failure) and "nested" in one.verdict.message
    assert relayed(attempt(), [stream]) == stream
    whole = attempt(exchange(client_request(stream=False)), hold_whole=True)
    whole.take_completion(completion({"content": "Hi", "odd": deep}))
    assert isinstance(whole.verdict, Failure) and "nested" in whole.verdict.message


def test_the_older_form_comes_back_both_ways() -> None:
    asked = exchange(client_request(legacy_functions=True))
    out = relayed(attempt(asked), [stream_bytes(KINDS["tool_calls_split"].chunks)])
    assert b"tool_calls" not in out and b"function_call" in out
    one = attempt(exchange(client_request(stream=False, legacy_functions=True)))
    one.feed(stream_bytes(KINDS["tool_call_whole"].chunks))
    assert one.completion() == KINDS["function_call"].completion


# What else goes out at the end


def test_the_note_goes_before_done() -> None:
    one = attempt()
    out = one.feed(stream_bytes(KINDS["text"].chunks))
    note = sse.comment_frame("x-mlx-stack {}")
    whole = out + one.rest(note)
    assert whole == stream_bytes(KINDS["text"].chunks).removesuffix(DONE) + note + DONE


@pytest.mark.parametrize("include_usage", [True, False])
def test_metadata_joins_the_last_chunk_that_the_client_sees(include_usage: bool) -> None:
    one = attempt(exchange(client_request(include_usage=include_usage)))
    one.feed(stream_bytes(KINDS["text"].chunks))
    frames = one.rest(metadata={"tier": "fast"}).split(b"\n\n")
    last = json.loads(frames[-3].removeprefix(b"data: "))
    assert last["mlx_stack"] == {"tier": "fast"}
    assert bool(last["choices"]) is not include_usage
    assert b"mlx_stack" not in b"".join(frames[:-3])
    whole = attempt(exchange(client_request(stream=False)))
    whole.feed(stream_bytes(KINDS["text"].chunks))
    assert whole.completion({"tier": "fast"})["mlx_stack"] == {"tier": "fast"}


# A choice finishes once


CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("chunks", "text", "calls", "reason"),
    [
        ([({"content": "a"}, None), ({}, "stop"), ({}, "stop")], "a", 0, "stop"),
        ([({"content": "a"}, None), ({}, "stop"), ({}, "length")], "a", 0, "stop"),
        ([({"content": "a"}, "stop"), ({"content": "b"}, "stop")], "ab", 0, "stop"),
        ([({"content": "a"}, "stop"), ({"content": "b"}, "length")], "ab", 0, "length"),
        ([({"tool_calls": [CALL]}, "tool_calls"), ({}, "stop")], "", 1, "tool_calls"),
        (
            [({"content": "a"}, "stop"), ({"tool_calls": [CALL]}, "tool_calls")],
            "a",
            1,
            "tool_calls",
        ),
    ],
)
def test_a_choice_that_finishes_twice(
    chunks: list[tuple[Json, str]], text: str, calls: int, reason: str, streams: bool
) -> None:
    """Its finish comes once, at its end, with what was said when anything last came."""
    sent = [chunk({"role": "assistant"}), *(chunk(delta, finish) for delta, finish in chunks)]
    one = attempt(exchange(client_request(stream=streams)), hold_whole=not streams)
    if streams:
        out = relayed(one, [stream_bytes(sent)])
        frames = [json.loads(f[6:]) for f in out.split(b"\n\n") if f and f != b"data: [DONE]"]
        said = [choice for frame in frames for choice in frame["choices"]]
        assert [c["finish_reason"] for c in said if c["finish_reason"]] == [reason]
        assert said[-1]["finish_reason"] == reason
        deltas = [choice["delta"] for choice in said]
    else:
        one.feed(stream_bytes(sent))
        assert one.settle() is None
        (choice,) = one.completion()["choices"]
        assert choice["finish_reason"] == reason
        deltas = [choice["message"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == text
    assert sum(len(delta.get("tool_calls") or ()) for delta in deltas) == calls


# Calls without end


def calls(count: int) -> list[Json]:
    return [
        {"id": f"c{at}", "type": "function", "function": {"name": "list_files", "arguments": "{}"}}
        for at in range(count)
    ]


@pytest.mark.parametrize("streams", [True, False])
def test_calls_without_end_are_cut_as_soon_as_there_are_too_many(streams: bool) -> None:
    asked = exchange(client_request(stream=streams, tools=TOOLS))
    one = attempt(asked, stages=[stage()])
    many = calls(MAX_CALLS + 50)
    taken = 0
    for piece in with_role(*({"tool_calls": [{"index": i, **c}]} for i, c in enumerate(many))):
        if one.over:
            break
        one.feed(data(piece))
        taken += 1
    assert taken == 1 + MAX_CALLS + 1, "the rest is not read"
    verdict = one.settle()
    assert isinstance(verdict, InvalidToolCall)
    assert [failure.kind for failure in verdict.failures] == ["too_many_calls"]


@pytest.mark.parametrize("stages", [[stage()], []], ids=["checked", "unchecked"])
def test_too_many_calls_of_a_whole_reply(stages: list[Any]) -> None:
    one = attempt(exchange(client_request(stream=False, tools=TOOLS)), stages=stages)
    one.take_completion(completion({"tool_calls": calls(10 * MAX_CALLS)}, "tool_calls"))
    assert len(one.reply.choices[0].tool_calls) == MAX_CALLS + 1, "the rest is not read"
    verdict = one.settle()
    assert isinstance(verdict, InvalidToolCall if stages else Failure)
    assert isinstance(verdict, InvalidToolCall) or "128 calls" in verdict.message


def test_as_many_calls_as_are_allowed_pass() -> None:
    one = attempt(exchange(client_request(stream=False, tools=TOOLS)), stages=[stage()])
    whole = completion({"content": None, "tool_calls": calls(MAX_CALLS)}, "tool_calls")
    one.take_completion(whole)
    assert one.settle() is None
    assert one.completion() == whole


def test_a_stream_without_end_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_module, "MAX_STREAM", 100_000)
    one = attempt()
    fed = 0
    while not one.over:
        fed += len(data(chunk({"content": "a"})))
        one.feed(data(chunk({"content": "a"})))
    assert 100_000 < fed < 101_000
    assert isinstance(one.verdict, Failure)
    assert one.verdict.final


def test_a_reply_of_which_too_much_is_held_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_module, "MAX_HELD", 100_000)
    one = attempt(hold_whole=True)
    for _ in range(1_000):
        one.feed(data(chunk({"content": "a"})))
    assert isinstance(one.verdict, Failure)


# What servers say of a reply that isn't so: its end, its usage, its choices, nulls in calls
ZERO = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
TRUE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


def call(**more: Any) -> Json:
    piece = {"index": 0, "id": "c1", "type": "function", **more}
    return {"tool_calls": [{**piece, "function": {"name": "f", "arguments": "{}"}}]}


def payloads(*chunks: Json, **asked: Any) -> list[Json]:
    out = relayed(attempt(exchange(client_request(**asked))), [*map(data, chunks), DONE])
    events = [event.removeprefix(b"data: ") for event in out.split(b"\n\n") if event]
    return [json.loads(event) for event in events if event != b"[DONE]"]


@pytest.mark.parametrize(
    ("sent", "delivered"),
    [("stop", "tool_calls"), ("length", "length"), ("content_filter", "content_filter")],
)
def test_a_reply_with_calls_ends_for_them(sent: str, delivered: str) -> None:
    streamed = payloads(chunk(call()), chunk({}, sent))
    assert streamed[-1]["choices"][0]["finish_reason"] == delivered
    whole = completion_of(data(chunk(call(), sent)) + DONE)
    assert whole["choices"][0]["finish_reason"] == delivered


def test_a_choice_that_nobody_asked_for_is_left_out() -> None:
    pieces = [chunk({"content": "one"}), chunk({"content": "uno"}, index=1)]
    ends = [chunk({}, "stop"), chunk({}, "stop", index=1)]
    asked = exchange(client_request())
    one = attempt(asked)
    out = relayed(one, [*map(data, [*pieces, *ends]), DONE])
    assert b"uno" not in out
    assert out.count(b'"finish_reason":"stop"') + out.count(b'"finish_reason": "stop"') == 1
    # What the client has is the first choice's text alone, so that nothing of a mended one is lost.
    assert one.reply.flowed == len("one")


def test_the_only_choice_counts_whatever_its_index_is() -> None:
    [first, *_] = payloads(chunk({"content": "one"}, index=3), chunk({}, "stop", index=3))
    assert first["choices"][0]["delta"]["content"] == "one"


def test_a_usage_of_nothing_is_missing() -> None:
    chunks = [chunk({"content": "Some words."}), chunk({}, "stop"), usage_chunk(ZERO)]
    usages = [payload["usage"] for payload in payloads(*chunks) if payload.get("usage")]
    assert [usage["completion_tokens"] > 0 for usage in usages] == [True]
    whole = completion_of(b"".join(map(data, chunks)) + DONE)
    assert whole["usage"]["completion_tokens"] > 0
    assert whole["usage"]["prompt_tokens"] > 0


def test_a_usage_of_nothing_does_not_hide_a_later_one() -> None:
    first = {**chunk({"content": "Some"}), "usage": ZERO}
    second = {**chunk({"content": " words."}), "usage": ZERO}
    whole = completion_of(
        b"".join(map(data, [first, second, chunk({}, "stop"), usage_chunk(TRUE)])) + DONE
    )
    assert whole["usage"] == TRUE


def test_an_empty_reply_may_have_a_usage_of_nothing() -> None:
    usages = [one.get("usage") for one in payloads(chunk({}, "stop"), usage_chunk(ZERO))]
    assert ZERO in usages


def test_nulls_in_the_pieces_of_a_call_are_left_out() -> None:
    """JavaScript clients append them as the text `null`."""
    more = {"index": 0, "id": None, "type": "function"}
    piece = {"tool_calls": [{**more, "function": {"name": None, "arguments": "1}"}}]}
    begun = call()
    begun["tool_calls"][0]["function"]["arguments"] = '{"a": '
    _, second, _ = payloads(chunk(begun), chunk(piece), chunk({}, "tool_calls"))
    [said] = second["choices"][0]["delta"]["tool_calls"]
    assert said == {"index": 0, "type": "function", "function": {"arguments": "1}"}}


def test_the_default_response_format_asks_for_nothing() -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
    parsed = client_request_module.parse(
        json.dumps({**body, "response_format": {"type": "text"}}).encode()
    )
    assert parsed.body == body
    assert not exchange(parsed).hold_whole
    wanted = {**body, "response_format": {"type": "json_object"}}
    assert client_request_module.parse(json.dumps(wanted).encode()).body == wanted
