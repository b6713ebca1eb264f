"""Histories: turns as transcripts tell them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.loop_detection import call_keys
from tests.engine.exchanges import ODD
from tests.loop_detection.turns_made import (
    SYSTEM,
    USER,
    assistant,
    call,
    came,
    read,
    step,
    told,
    tool,
)

Json = dict[str, Any]


# What a turn is


def test_a_turn_is_what_came_in_and_what_was_done() -> None:
    whole = read([SYSTEM, USER, *step(1, "one"), assistant(text="Found it.")])
    first, second = whole.turns
    assert [c.name for c in first.calls] == ["search"]
    assert not first.inputs.results
    assert second.inputs.results[0] is not None
    assert second.action == read([USER, assistant(text=" Found  it. ")]).turns[0].action
    assert came(whole, 0).results == second.inputs.results
    assert came(whole, 1).results == ()


def inputs_of(*messages: Json) -> int:
    return read([USER, assistant(call("f", {})), *messages]).pending.digest


@pytest.mark.parametrize(
    "same",
    [
        [tool("a  b\n")],
        [tool([{"type": "text", "text": "a b"}])],
        [tool("a b", id="")],
        [{"role": "function", "name": "f", "content": "a b"}],
    ],
)
def test_results_are_the_same_by_what_they_say(same: list[Json]) -> None:
    assert inputs_of(*same) == inputs_of(tool("a b"))


@pytest.mark.parametrize(
    "other",
    [
        [tool("a c")],
        [tool(None)],
        [],
        [tool([{"type": "text", "text": "a b"}, {"type": "image_url", "image_url": {"url": "u"}}])],
    ],
)
def test_and_not_otherwise(other: list[Json]) -> None:
    assert inputs_of(*other) != inputs_of(tool("a b"))


def test_the_order_of_calls_and_of_their_results_does_not_matter() -> None:
    one, two = call("f", {"x": 1}, "a"), call("g", {"y": [2]}, "b")
    first = read([USER, assistant(one, two), tool("1", "a"), tool("2", "b")])
    second = read([USER, assistant(two, one), tool("2", "b"), tool("1", "a")])
    swapped = read([USER, assistant(two, one), tool("1", "b"), tool("2", "a")])
    assert told(first) == told(second)
    assert told(first) != told(swapped)


@pytest.mark.parametrize("arguments", ['{"a":1,"b":2}', '{ "b": 2,\n "a": 1 }', {"b": 2, "a": 1}])
def test_arguments_are_compared_as_json(arguments: Any) -> None:
    made = call("f", "")
    made["function"]["arguments"] = arguments
    assert told(read([USER, assistant(made)])) == told(
        read([USER, assistant(call("f", {"a": 1, "b": 2}))])
    )


def test_a_legacy_function_call_is_a_call() -> None:
    legacy = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    (turn,) = read([USER, legacy]).turns
    assert [one.name for one in turn.calls] == ["f"]


def test_where_a_task_starts() -> None:
    again = {"role": "user", "content": "Now the other one."}
    whole = read([USER, *step(1), assistant(text="Done."), again, *step(2), USER, *step(3)])
    assert [turn.inputs.starts_task for turn in whole.turns] == [True, False, True, False]
    assert whole.task_start == 2
    assert whole.turns[3].inputs.interjected
    assert read([USER, *step(1), assistant(text="Done."), again]).task_start == 2


def test_what_a_user_says_to_an_agent_without_calls_is_what_it_is_shown() -> None:
    """So it is with agents that write their commands into their texts."""
    said = [USER, assistant(text="```\nls\n```"), {"role": "user", "content": "a b"}]
    whole = read([*said, assistant(text="```\ncat a\n```"), {"role": "user", "content": "x"}])
    assert whole.task_start == 0
    assert came(whole, 0).digest == read(said).pending.digest


@given(
    st.lists(st.dictionaries(st.sampled_from(["content", "tool_calls", "name"]), ODD), max_size=4)
)
def test_odd_messages_do_no_harm(parts: list[Json]) -> None:
    roles = ("assistant", "tool", "user", "odd")
    read([{"role": roles[at % 4], **part} for at, part in enumerate(parts)])


@given(st.lists(st.sampled_from("cattu"), max_size=8), st.sampled_from(["", "c"]))
def test_a_reply_closes_a_history_as_if_it_had_been_read(kinds: list[str], last: str) -> None:
    kind = {
        "c": [assistant(call("search", {"query": "1"})), tool("ok")],
        "a": [assistant(text="So.")],
        "t": [assistant(call("read", {"path": "2"}, "c2")), tool("fine", "c2")],
        "u": [USER],
    }
    before = read([USER, *(message for one in kinds for message in kind[one])])
    made = [call_keys.read("search", '{"query": "1"}')] if last else []
    closed = before.closed_by("So.", made)
    messages = [USER, *(message for one in kinds for message in kind[one])]
    reply = assistant(*[call("search", {"query": "1"})] if last else [], text="So.")
    anew = read([*messages, reply])
    assert told(closed)[0] == told(anew)[0]
    assert (closed.task_start, closed.repeats) == (anew.task_start, anew.repeats)
