"""The stage on whole replies: its switches, what it mends, and what it must not touch."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.request import Controls
from mlx_stack_proxy.engine.verdicts import InvalidToolCall
from mlx_stack_proxy.tool_validation import mend_choice
from tests.engine.exchanges import Faults, attempt, relayed
from tests.support.replies import stream_bytes, with_role
from tests.tool_validation.calls import tool
from tests.tool_validation.tool_replies import (
    FORMATS,
    GOOD,
    LIST,
    UNKNOWN,
    Json,
    asked,
    call,
    ids,
    judged,
    message,
    stage,
)

# Every switch


NO_QUERY = '<tool_call>{"name": "search", "arguments": {"limit": 5}}</tool_call>'


@pytest.mark.parametrize(
    ("switched_off", "reply", "body"),
    [
        ({"validate_json": False}, message(call("search", "{query: quokka, [}")), {}),
        ({"validate_json": False}, message(finish="tool_calls"), {}),
        ({"validate_schema": False}, message(call("search", '{"query": 5}')), {}),
        ({"validate_tool_names": False}, message(call("delete_all", "{}")), {}),
        ({"validate_tool_names": False}, message(text=UNKNOWN), {}),
        ({"validate_tool_names": False}, message(call()), {"tool_choice": "none"}),
        ({"validate_plausibility": False}, message(call("search", '{"query": ""}')), {}),
        ({"rescue_text_calls": False}, message(text=NO_QUERY), {}),
        ({"response_format": False}, message(text="no"), {"response_format": FORMATS[0]}),
    ],
    ids=str,
)
def test_a_check_that_is_switched_off(switched_off: Json, reply: Json, body: Json) -> None:
    # Without repair, so that what passes passes for want of the check.
    assert judged(reply, asked(**body), repair="off").verdict is not None
    outcome = judged(reply, asked(**body), repair="off", **switched_off)
    assert outcome.verdict is None
    assert outcome.repairs is None


# Rescue


def test_a_rescued_call() -> None:
    said = "On it.\n<tool_call>{'name': 'search', 'arguments': {'query': 'x', 'limit': '5'}}"
    outcome = judged(message(text=f"{said}</tool_call>"))
    assert outcome.calls == [("search", {"query": "x", "limit": 5})], "checked and mended, too"
    assert outcome.choice["message"]["content"].strip() == "On it."
    assert outcome.choice["finish_reason"] == "tool_calls"
    assert outcome.repairs is not None and "rescued" in outcome.repairs
    assert ("tool_call_rescued", ("hermes_json",)) in outcome.incidents
    assert ids(outcome)[0].startswith("call_")


def test_a_bad_call_written_as_text_stays_as_it_came_for_the_retry() -> None:
    outcome = judged(message(text=NO_QUERY))
    choice = outcome.attempt.reply.choices[0]
    assert (choice.text, choice.tool_calls) == (NO_QUERY, [])
    assert isinstance(outcome.verdict, InvalidToolCall)
    assert outcome.verdict.response == {
        "role": "assistant",
        "content": NO_QUERY,
        "tool_calls": [],
    }
    assert outcome.incidents == [("tool_call_invalid", ("missing_required",))]


# Several choices


def test_one_bad_choice_makes_the_reply_bad_and_mends_none() -> None:
    reply = message(call("search", '{"query": "x",}'))
    other = message(call("search", "{}"))["choices"][0]
    reply["choices"].append({**other, "index": 1})
    outcome = judged(reply, asked(n=2))
    assert [(one.kind, one.choice) for one in outcome.failures] == [("missing_required", 1)]
    assert outcome.repairs is None
    assert outcome.incidents == [("tool_call_invalid", ("missing_required",))]


def test_choices_are_mended_each_on_its_own() -> None:
    reply = message(call("search", '{"query": "x",}'))
    text = message(text="Nothing to call.")["choices"][0]
    reply["choices"].append({**text, "index": 1})
    outcome = judged(reply, asked(n=2))
    first, second = outcome.attempt.completion()["choices"]
    assert first["message"]["tool_calls"][0]["function"]["arguments"] == '{"query": "x"}'
    assert second == {**text, "index": 1}


# What is right is never touched


@pytest.mark.parametrize(
    ("schema", "spelling"),
    [
        ({"properties": {"query": {"type": "string"}}}, '{\n  "query" : "qu\\u006fkka"\n}'),
        ({"properties": {"query": {"type": "text", "pattern": "["}}, "required": "query"}, GOOD),
        (None, '{"query":"quokka"}'),
    ],
    ids=str,
)
def test_a_right_call_goes_out_as_the_bytes_that_came(schema: Any, spelling: str) -> None:
    faults = Faults()
    whole = asked(tools=[tool("search", schema), LIST], stream=True)
    one = attempt(whole, stages=[stage()], faults=faults)
    pieces = [
        {"tool_calls": [{"index": 0, **call("search", "")}]},
        *({"tool_calls": [{"index": 0, "function": {"arguments": c}}]} for c in spelling),
    ]
    stream = stream_bytes(with_role({"content": "Let me < see."}, *pieces, finish="tool_calls"))
    assert relayed(one, [stream]) == stream
    assert faults == []
    assert one.remarks().reply_notes == {}


# A stage that faults, and one that is left out


def test_a_stage_that_faults_lets_the_reply_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(mend_choice, "check_call", broken)
    delta = {"tool_calls": [{"index": 0, **call("search", "{}")}]}
    stream = stream_bytes(with_role(delta, finish="tool_calls"))
    faults = Faults()
    assert relayed(attempt(asked(stream=True), stages=[stage()], faults=faults), [stream]) == stream
    assert [(name, str(error)) for name, error in faults] == [
        ("tool_validation", "a fault of ours")
    ]


@pytest.mark.parametrize(
    ("left_out", "checked"), [({"validation"}, False), ({"loop", "budget"}, True)]
)
def test_bypass(left_out: set[str], checked: bool) -> None:
    whole = asked(Controls(bypass=frozenset(left_out)))
    assert (judged(message(call("delete_all", "{")), whole).verdict is not None) is checked


# The client's own history


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"query": ', '{"_unparsed":"{\\"query\\": "}'),
        ("plain words", '{"_unparsed":"plain words"}'),
        ("[1]", '{"_unparsed":"[1]"}'),
        (["a"], '{"_unparsed":"[\\"a\\"]"}'),
        ("", "{}"),
        (None, "{}"),
        ("x" * 9000, '{"_unparsed":"%s"}' % ("x" * 2000)),
    ],
    ids=["cut", "words", "a list", "a list, not encoded", "empty", "none", "long"],
)
def test_unparsable_arguments_of_the_history(arguments: Any, sent: str) -> None:
    history = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [call("search", arguments)]},
        {"role": "tool", "tool_call_id": "call_1", "content": "?"},
    ]
    whole = asked(messages=history)
    one = attempt(whole, stages=[stage()])
    assert one.on_request() is None
    messages = one.request.body["messages"]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "search", "arguments": sent}
    assert (messages[0], messages[2]) == (history[0], history[2])
    assert history[1]["tool_calls"][0]["function"]["arguments"] == arguments, "ours is a copy"
    assert [(said.kind, said.labels) for said in one.remarks().incidents] == [
        ("tool_call_repaired", ("unparsed_history",))
    ]


def test_unparsable_arguments_behind_a_known_beginning() -> None:
    """They are mended in each request, in new messages as in those that came before."""
    good = [{"role": "assistant", "tool_calls": [call("search", GOOD)]}] * 40
    bad = [{"role": "assistant", "tool_calls": [call("search", "{")]}] * 40
    for history, found in ((good, []), ([*good, *bad], [40]), ([*good, *bad, *good], [40])):
        one = attempt(asked(messages=history), stages=[stage()])
        one.on_request()
        assert [said.detail["count"] for said in one.remarks().incidents] == found


@pytest.mark.parametrize("arguments", [GOOD, "{}", {"query": "x"}])
def test_a_readable_history_is_sent_as_it_came(arguments: Any) -> None:
    history = [{"role": "assistant", "tool_calls": [call("search", arguments)]}]
    whole = asked(messages=history)
    one = attempt(whole, stages=[stage()])
    one.on_request()
    assert one.request.body["messages"][0] is history[0]
    assert one.remarks().incidents == []


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "search", "arguments": {"query": "a\\ud83d"}}</tool_call>',
        "<tool_call>{'name': 'search', 'arguments': {'query': 'a\\ud83d'}}</tool_call>",
        '{"name": "search", "arguments": {"query": "a\\ud83d"}}',
        '[search(query="a\\ud83d")]',
    ],
)
def test_half_a_character_in_a_rescued_call(text: str) -> None:
    one = attempt(asked(stream=True), stages=[stage()])
    out = relayed(one, [stream_bytes(with_role({"content": text}))])
    assert rb'"arguments":"{\"query\": \"a\\ud83d\"}"' in out


def test_half_a_character_in_the_name_of_a_rescued_call() -> None:
    text = '<tool_call>{"name": "search\\ud83d", "arguments": {"query": "a"}}</tool_call>'
    (failure,) = judged(message(text=text)).failures
    assert (failure.tool, failure.kind) == ("search?", "unknown_tool")
