"""Transcripts that tell calls and results as text, as smolagents 1.26 sends them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.loop_detection import told_calls
from mlx_stack_proxy.loop_detection.history import HistoryReader
from mlx_stack_proxy.wire.blocks import Blocks
from tests.core.histories import USER, assistant, call, came, tool

Json = dict[str, Any]
ARGUMENTS: Json = {"order_id": "A-1043", "note": 'it\'s "his"\nnow', "deep": [1, None, True, {}]}


def told(name: str, arguments: Any, number: int = 1, text: str = "") -> Json:
    """An assistant message as smolagents writes it: `str` of the calls, their ids included."""
    function = {"name": name, "arguments": arguments}
    calls = [{"id": f"call_{number}f3a", "type": "function", "function": function}]
    said = (text + "\n" if text else "") + "Calling tools:\n" + str(calls)
    return {"role": "assistant", "content": [{"type": "text", "text": said}]}


def observed(result: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": f"Observation:\n{result}"}]}


def read(*messages: Json) -> Any:
    return HistoryReader().read("s", Blocks([USER, *messages]))


def test_they_are_what_the_field_says_otherwise() -> None:
    said = read(told("get_order", ARGUMENTS), observed("paid"), told("get_order", {}, 2))
    wire = read(
        assistant(call("get_order", ARGUMENTS)), tool("paid"), assistant(call("get_order", {}))
    )
    assert [turn.calls for turn in said.turns] == [turn.calls for turn in wire.turns]
    assert came(said, 0).results == came(wire, 0).results
    assert [turn.action for turn in said.turns] == [turn.action for turn in wire.turns]


def test_ids_that_differ_make_no_difference() -> None:
    one, two = (read(told("get_order", ARGUMENTS, number)).turns[0] for number in (1, 2))
    assert (one.calls, one.place) == (two.calls, two.place)


def test_the_text_before_them_stays_text() -> None:
    said = read(told("get_order", {}, text="Let me look at A-1043."))
    wire = read(assistant(call("get_order", {}), text="Let me look at A-1043."))
    assert said.turns[0].place == wire.turns[0].place


def test_code_is_told_twice_and_is_text() -> None:
    """A code agent's reply is the text; the call is what smolagents says of it afterwards."""
    code = "Thought: once more.\n<code>\nprint(look('A'))\n</code>"
    said = read(told("python_interpreter", "print(look('A'))", text=code))
    assert said.turns[0].calls == ()
    assert said.turns[0].action == read(assistant(text=code)).turns[0].action


def test_an_error_is_a_result_whatever_its_id() -> None:
    def failed(number: int) -> Json:
        return {"role": "user", "content": f"Call id: call_{number}\nError:\nno such order\nNow"}

    one, two = (
        came(read(told("get_order", {}), failed(number)), 0).results[0] for number in (1, 2)
    )
    assert one == two is not None


def test_another_picture_is_another_result() -> None:
    def shown(url: str) -> Json:
        picture = {"type": "image_url", "image_url": {"url": url}}
        return {"role": "user", "content": [picture, *observed("a page")["content"]]}

    one, two = (came(read(told("look", {}), shown(url)), 0).results for url in ("data:1", "data:2"))
    assert None not in (*one, *two)
    assert one != two


def test_results_begin_no_new_count() -> None:
    said = read(told("get_order", {}), observed("paid"), told("get_order", {}), observed("paid"))
    assert said.task_start == 0
    assert [len(turn.calls) for turn in said.turns] == [1, 1]


def test_a_user_that_speaks_of_observations_is_still_the_user() -> None:
    history = read(assistant(text="Tell me what you see."), observed("a quokka"))
    assert history.pending.user


@pytest.mark.parametrize(
    "text",
    [
        "Calling tools:\n[",
        "Calling tools:\n[{'id': 'c1', 'type': 'function'}]",
        "Calling tools:\n[{'function': {'name': 7, 'arguments': {}}}]",
        "Calling tools:\n['get_order']",
        "Calling tools:\n[{'function': {'name': 'a', 'arguments': {}}}] and more",
        "Calling tools:\n" + "[" * 5000,
        "I was calling tools:\n[{'function': {'name': 'a', 'arguments': {}}}]",
    ],
)
def test_what_cannot_be_read_stays_text(text: str) -> None:
    assert told_calls.split(text) == (text, [])
    history = read(assistant(text=text))
    assert history.turns[0].calls == ()


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.booleans() | st.none()))
def test_any_arguments_are_read_as_python_writes_them(arguments: Json) -> None:
    said = read(told("a", arguments))
    assert said.turns[0].calls == read(assistant(call("a", json.dumps(arguments)))).turns[0].calls
