"""What counts as broken, and as going round in circles."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.agents import broken
from benchmarks.agents.tasks import plain_tools

Json = dict[str, Any]
GOOD = {"order_id": "A-1"}


def call(name: str = "get_order", arguments: Any = None, call_id: str = "c1") -> Json:
    said = arguments if isinstance(arguments, str) else json.dumps(arguments or GOOD)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": said}}


def calling(*calls: Json) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def text(said: str) -> Json:
    return {"role": "assistant", "content": said}


def lap(result: str, number: int, **arguments: Any) -> list[Json]:
    made = call(arguments=arguments or None, call_id=f"c{number}")
    answer = {"role": "tool", "tool_call_id": f"c{number}", "content": result}
    return [calling(made), answer]


@pytest.mark.parametrize(
    ("message", "finish", "flaw"),
    [
        (calling(call()), "tool_calls", ""),
        (calling(call(arguments='{"order_id": "A-1"')), "tool_calls", "arguments"),
        (calling(call(arguments='["A-1"]')), "tool_calls", "arguments"),
        (calling(call(arguments={"order": "A-1"})), "tool_calls", "schema"),
        (calling(call(arguments={"order_id": 7})), "tool_calls", "schema"),
        (calling(call("getOrder")), "tool_calls", "unknown_tool"),
        (calling(call(), call("getOrder")), "tool_calls", "unknown_tool"),
        (calling(*[call()] * 2), "tool_calls", ""),
        (calling(*[call()] * 3), "tool_calls", "looping"),
        (text("Done. Order A-1 is now shipped."), "stop", ""),
        (text("I used get_order to look it up (it took a while)."), "stop", ""),
        (text('<tool_call>\n{"name": "get_order"'), "stop", "call_as_text"),
        (text('```json\n{"name": "get_order", "arguments": {}}\n```'), "stop", "call_as_text"),
        (text('I will call get_order with {"order_id": "A-1"} now.'), "stop", "call_as_text"),
        (text("<function=get_order>\n<parameter=order_id>A-1"), "stop", "call_as_text"),
        (text("Thought: I should.\nAction: get_order\nAction Input: {}"), "stop", "call_as_text"),
        (text('get_order(order_id="A-1")'), "stop", "call_as_text"),
        (text("Let me check that for you. " * 5), "length", "looping"),
        ({"content": "", "reasoning_content": "Hmm, which one? " * 9}, "stop", "looping"),
        (text("It goes on and"), "length", "cut"),
        (text(" \n"), "stop", "empty"),
        ({"content": None}, "tool_calls", "empty"),
    ],
)
def test_flaws(message: Json, finish: str, flaw: str) -> None:
    assert broken.flaw(message, finish, [], plain_tools()) == flaw


def test_the_same_call_with_the_same_result_loops_the_fourth_time() -> None:
    history: list[Json] = [{"role": "user", "content": "Look up A-1"}]
    for number in range(3):
        assert broken.flaw(calling(call()), "tool_calls", history, plain_tools()) == ""
        history += lap("paid", number)
    assert broken.flaw(calling(call()), "tool_calls", history, plain_tools()) == "looping"


def test_tokens_are_burnt_from_the_first_repeat() -> None:
    history = lap("paid", 1)
    assert broken.loops(calling(call()), 2, history) == "turns"
    assert broken.loops(calling(call(arguments='{"order_id":"A-1"}')), 2, history) == "turns"
    assert broken.loops(calling(call(arguments={"order_id": "B"})), 2, history) == ""
    # Beside a call that is new it is not all for nothing.
    assert broken.loops(calling(call(), call("get_customer", "{}")), 2, history) == ""


@pytest.mark.parametrize(
    ("said", "loops"),
    [
        ("var/" * 40, True),
        ("The answer is the answer is " * 6 + "The answer", True),
        ("one two three four. " * 3, False),
        ("=" * 30, False),
        ("No end. " * 20 + "But here it is: 42.", False),
        ("", False),
    ],
)
def test_texts_that_go_round(said: str, loops: bool) -> None:
    assert broken.periodic(said) is loops
