"""The older spelling of tools, turned both ways."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.wire import legacy
from tests.engine.exchanges import USER
from tests.support.messages import called, gave
from tests.support.replies import FUNCTIONS, KINDS, TIME, TOOLS, WEATHER, chunk, usage_chunk

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("body", "used"),
    [
        ({"functions": FUNCTIONS}, True),
        ({"functions": FUNCTIONS, "tools": []}, True),
        ({"functions": FUNCTIONS, "tools": TOOLS}, False),
        ({"functions": []}, False),
        ({"tools": TOOLS}, False),
        ({}, False),
    ],
)
def test_which_requests_are_in_the_older_form(body: Json, used: bool) -> None:
    assert legacy.is_used(body) is used


@pytest.mark.parametrize(
    ("function_call", "tool_choice"),
    [
        ("auto", {"tool_choice": "auto"}),
        ("none", {"tool_choice": "none"}),
        (
            {"name": "get_time"},
            {"tool_choice": {"type": "function", "function": {"name": "get_time"}}},
        ),
        (None, {}),
    ],
)
def test_a_request_to_tools(function_call: Any, tool_choice: Json) -> None:
    body = {
        "messages": [USER],
        "functions": FUNCTIONS,
        "function_call": function_call,
        "temperature": 0.5,
    }
    new = legacy.to_tools(body)
    assert new == {"messages": [USER], "tools": TOOLS, "temperature": 0.5, **tool_choice}
    assert "functions" in body  # the client's own body is left alone


def test_the_history_to_tool_messages() -> None:
    weather, time = WEATHER["function"], TIME["function"]
    old = [
        USER,
        {"role": "assistant", "content": None, "function_call": weather},
        {"role": "function", "name": "get_weather", "content": "rain"},
        {"role": "assistant", "content": "And?", "function_call": time},
        {"role": "function", "name": "get_time", "content": "noon"},
    ]
    first, second = "call_function_1", "call_function_2"
    one, two = {**WEATHER, "id": first}, {**TIME, "id": second}
    assert legacy.to_tools({"messages": old, "functions": FUNCTIONS})["messages"] == [
        USER,
        called(one),
        gave(first, "rain"),
        called(two, content="And?"),
        gave(second, "noon"),
    ]


def test_only_the_first_call_goes_back() -> None:
    whole = KINDS["tool_calls_split"].completion
    message = legacy.to_functions(whole, "message")["choices"][0]["message"]
    assert message == {
        "role": "assistant",
        "content": None,
        "function_call": WEATHER["function"],
    }


def test_the_pieces_of_a_stream_back_to_functions() -> None:
    chunks = [legacy.to_functions(c, "delta") for c in KINDS["tool_calls_split"].chunks]
    deltas = [one["choices"][0]["delta"] for one in chunks]
    calls = [delta["function_call"] for delta in deltas if "function_call" in delta]
    assert calls[0]["name"] == "get_weather"
    assert "".join(call["arguments"] for call in calls) == WEATHER["function"]["arguments"]
    assert not any("tool_calls" in delta for delta in deltas)
    assert chunks[-1]["choices"][0]["finish_reason"] == "function_call"


@pytest.mark.parametrize(
    "payload",
    [
        chunk({"content": "a"}),
        chunk({}, "stop"),
        usage_chunk(),
        {"error": {"message": "m"}},
    ],
)
def test_what_has_no_tools_stays(payload: Json) -> None:
    assert legacy.to_functions(payload, "delta") == payload


@pytest.mark.parametrize("calls", [None, []])
def test_no_calls_leave_no_trace(calls: Any) -> None:
    delta = legacy.to_functions(chunk({"tool_calls": calls}), "delta")["choices"][0]["delta"]
    assert delta == {}
