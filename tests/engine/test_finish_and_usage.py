"""What servers say of a reply that isn't so: its end, its usage, its choices, nulls in calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_stack_proxy.engine import client_request as requests
from tests.engine.exchanges import attempt, client_request, completion_of, exchange, relayed
from tests.support.replies import DONE, chunk, data, usage_chunk

Json = dict[str, Any]
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


def test_a_reply_without_calls_ends_as_it_came() -> None:
    streamed = payloads(chunk({"content": "Hi", "tool_calls": []}), chunk({}, "stop"))
    assert streamed[-1]["choices"][0]["finish_reason"] == "stop"


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
    parsed = requests.parse(json.dumps({**body, "response_format": {"type": "text"}}).encode())
    assert parsed.body == body
    assert not exchange(parsed).hold_whole
    wanted = {**body, "response_format": {"type": "json_object"}}
    assert requests.parse(json.dumps(wanted).encode()).body == wanted
