"""Reading and checking a request's body; each error names the place of the mistake."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine.client_request import parse
from mlx_stack_proxy.engine.request import Request
from mlx_stack_proxy.errors import ProxyError
from tests.engine.exchanges import JSON, USER
from tests.support.replies import FUNCTIONS, TOOLS

Json = dict[str, Any]


def parsed(**body: Any) -> Request:
    return parse(orjson.dumps({"messages": [USER], **body}))


def refused(raw: bytes) -> ProxyError:
    with pytest.raises(ProxyError) as caught:
        parse(raw)
    error = caught.value
    assert (error.status, error.type) == (400, "invalid_request_error")
    return error


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is empty"),
        (b" \n ", "is empty"),
        (b"{", "is not valid JSON"),
        (b"not json", "is not valid JSON"),
        (b"{'messages': []}", "is not valid JSON"),
        (b"{} {}", "is not valid JSON"),
        (b"[" * 20_000, "is not valid JSON"),
        (b'{"messages": "\\ud83d"', "is not valid JSON"),
        (b'{"messages": [{"role": "user", "content": NaN}]}', "is not valid JSON"),
        (b'{"messages": [], "temperature": Infinity}', "is not valid JSON"),
        (b'{"messages": "\xff"}', "is not valid JSON"),
        (b"[" * 20_000 + b"]" * 20_000, "is not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"7", "must be a JSON object"),
    ],
)
def test_what_is_no_object(raw: bytes, message: str) -> None:
    error = refused(raw)
    assert message in error.message
    assert error.param is None


TOOL = TOOLS[0]


@pytest.mark.parametrize("system", [0, 1, 3])
def test_a_bad_message_behind_known_ones_is_told_by_its_place(system: int) -> None:
    good = [{"role": "system", "content": "It is 12:00."}] * system + [USER] * 50
    parsed(messages=good[:-10])
    for _ in range(2):
        error = refused(orjson.dumps({"messages": [*good, {"role": ""}]}))
        assert error.param == f"messages[{system + 50}].role"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": {"role": "user"}}, "messages"),
        ({"messages": [USER, "hi"]}, "messages[1]"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": 1}]}, "messages[0].role"),
        ({"messages": [USER, {"role": "user", "content": 7}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": {"text": "a"}}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages[0].tool_calls"),
        ({"model": 7}, "model"),
        ({"model": ["fast"]}, "model"),
        ({"model": "m" * 513}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": True}, "stream_options"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": True}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_tokens": 9.5}, "max_tokens"),
        ({"max_completion_tokens": False}, "max_completion_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": [1]}, "top_p"),
        ({"presence_penalty": {}}, "presence_penalty"),
        ({"frequency_penalty": ""}, "frequency_penalty"),
        ({"tools": {}}, "tools"),
        ({"tools": ["get_weather"]}, "tools[0]"),
        ({"tools": [TOOL, {"type": "function"}]}, "tools[1].function.name"),
        ({"tools": [{"function": {"name": 7}}]}, "tools[0].function.name"),
        ({"functions": "f"}, "functions"),
        ({"functions": [7]}, "functions[0]"),
        ({"functions": [{"parameters": {}}]}, "functions[0].name"),
        ({"tool_choice": 7}, "tool_choice"),
        ({"function_call": []}, "function_call"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"response_format": "json"}, "response_format"),
        ({"stop": 7}, "stop"),
        ({"stop": ["a", 7]}, "stop"),
    ],
)
def test_each_mistake_is_named_with_its_place(body: Json, param: str) -> None:
    error = refused(orjson.dumps({"messages": [USER], **body}))
    assert error.param == param
    assert f"`{param}`" in error.message


@pytest.mark.parametrize(
    "more",
    [
        {"stream": None, "tools": None, "n": None, "stop": None, "stream_options": None},
        {"n": 128, "max_tokens": 1, "temperature": 0, "top_p": 0.5, "stop": []},
        {"tool_choice": "auto", "tools": TOOLS},
        {"tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]},
        {"messages": [{"role": "whatever"}]},
        {"temperature": 99, "reasoning_effort": "high", "min_p": 0.1, "chat_template_kwargs": {}},
    ],
)
def test_what_passes_is_left_as_it_came(more: Json) -> None:
    assert parsed(**more).body == {"messages": [USER], **more}


def test_what_is_read_from_it() -> None:
    found = parsed(model="fast", stream=True, stream_options={"include_usage": True})
    assert (found.model, found.stream, found.include_usage) == ("fast", True, True)
    assert not found.legacy_functions
    older = parsed(functions=FUNCTIONS, function_call="auto")
    assert older.legacy_functions and older.tools == TOOLS
    bare = parsed(model=None)
    assert (bare.model, bare.stream, bare.include_usage) == ("", False, False)
    assert parse(b' {"messages": [{"role": "user"}]} ').size == 34


@pytest.mark.parametrize(
    ("limits", "smallest"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 5),
        ({"max_tokens": 7, "max_completion_tokens": 6}, 6),
        ({"max_tokens": None, "max_completion_tokens": 6}, 6),
    ],
)
def test_the_clients_own_limit(limits: Json, smallest: int | None) -> None:
    assert parsed(**limits).max_tokens == smallest


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(raw: bytes) -> None:
    try:
        parse(raw)
    except ProxyError as error:
        json.loads(error.encoded())


NAMES = (
    "model stream stream_options n max_tokens max_completion_tokens temperature top_p tools "
    "functions tool_choice function_call parallel_tool_calls response_format stop"
)
ODD_MESSAGE = JSON | st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "function_call", "name"]), JSON
)
ODD_TOOL = JSON | st.dictionaries(st.sampled_from(["type", "function", "name", "parameters"]), JSON)
ODD_BODY = st.fixed_dictionaries(
    {"messages": st.lists(ODD_MESSAGE | st.just(USER), max_size=3)},
    optional={
        **dict.fromkeys(NAMES.split(), JSON),
        "tools": st.lists(ODD_TOOL, max_size=2),
        "functions": st.lists(ODD_TOOL | st.just(FUNCTIONS[0]), max_size=2),
    },
)


@given(ODD_BODY)
def test_no_object_raises_anything_else(body: Json) -> None:
    try:
        found = parse(orjson.dumps(body))
    except ProxyError as error:
        assert error.status == 400
    else:
        orjson.dumps(found.body)
        assert found.max_tokens is None or found.max_tokens > 0


HALF = b'{"messages": [{"role": "user", "content": "cut \\ud83d"}], "z": "\\ud83d\\ude00"}'


def test_half_a_character_becomes_a_replacement_character() -> None:
    body = parse(HALF).body
    assert body["messages"][0]["content"] == "cut \ufffd"
    assert body["z"] == "😀"
