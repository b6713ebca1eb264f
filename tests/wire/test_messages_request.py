"""Requests of the Messages API as chat completions, line by line of the mapping."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.wire.messages import MESSAGES
from mlx_stack_proxy.wire.messages.request import count_tokens
from tests.support.messages import called, gave, reminder, says, tool_call

Json = dict[str, Any]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
MARK = {"cache_control": {"type": "ephemeral"}}
USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"b": 1, "a": "é"}}
CALL = tool_call("toolu_1", "look", '{"b":1,"a":"é"}')


def text(said: str, **more: Any) -> Json:
    return {"type": "text", "text": said, **more}


def user(*blocks: Any) -> Json:
    return says("user", list(blocks))


def assistant(*blocks: Any) -> Json:
    return says("assistant", list(blocks))


def result(content: Any, **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}


def tool_message(content: str) -> Json:
    return gave("toolu_1", content)


def chat(*messages: Any, **more: Any) -> Json:
    return MESSAGES.to_chat({"model": "m", "messages": list(messages), **more}, {}).body


ASKED, SAID = user(text("Hi")), says("user", "Hi")
USED, CALLED = assistant(USE), called(CALL)
# By name: the system, the messages, and what they come to.
CASES: dict[str, tuple[Any, list[Json], list[Json]]] = {
    "strings": ("Be short.", [says("user", "Hi")], [says("system", "Be short."), SAID]),
    "blocks": (
        [text("Be"), text("short.", **MARK)],
        [user(text("One"), text("two", **MARK))],
        [says("system", "Be\n\nshort."), says("user", "One\n\ntwo")],
    ),
    "a billing header": (
        [text("x-anthropic-billing-header: cc_version=1;"), text("Be.")],
        [ASKED],
        [says("system", "Be."), SAID],
    ),
    "nothing but a billing header": (
        [text("x-anthropic-billing-header: cc_version=1;")],
        [ASKED],
        [SAID],
    ),
    "a system message first": (
        "Be.",
        [says("system", "Here."), ASKED],
        [says("system", "Be.\n\nHere."), SAID],
    ),
    "one behind the user's": (
        None,
        [ASKED, says("system", "Now.")],
        [says("user", f"Hi\n\n{reminder('Now.')}")],
    ),
    "one behind results": (
        None,
        [ASKED, USED, user(result("x")), says("system", "N.")],
        [SAID, CALLED, tool_message("x"), says("user", reminder("N."))],
    ),
    "one between a call and its result": (
        None,
        [ASKED, USED, says("system", "N."), user(result("x"), text("On."))],
        [SAID, CALLED, tool_message("x"), says("user", f"{reminder('N.')}\n\nOn.")],
    ),
    "a result of several texts": (
        None,
        [ASKED, USED, user(result([text("a"), text("b")]))],
        [SAID, CALLED, tool_message("a\n\nb")],
    ),
    "an empty result": (None, [ASKED, USED, user(result(None))], [SAID, CALLED, tool_message("")]),
    "a failed one": (
        None,
        [ASKED, USED, user(result("No such file", is_error=True))],
        [SAID, CALLED, tool_message("Error: No such file")],
    ),
    "a failed one that says so": (
        None,
        [ASKED, USED, user(result("Error: no such file", is_error=True))],
        [SAID, CALLED, tool_message("Error: no such file")],
    ),
    "a tool that was loaded": (
        None,
        [ASKED, USED, user(result([{"type": "tool_reference", "tool_name": "fetch"}]))],
        [SAID, CALLED, tool_message("Loaded: fetch")],
    ),
    "an image between texts": (
        None,
        [user(text("a"), IMAGE, text("b"), text("c"))],
        [says("user", [text("a"), PICTURE, text("b\n\nc")])],
    ),
    "a document's text": (
        None,
        [user({"type": "document", "title": "T", "source": {"type": "text", "data": "D"}})],
        [says("user", "T\n\nD")],
    ),
    "a block that nobody knows": (
        None,
        [user({"type": "new", "n": 1, **MARK})],
        [says("user", '{"type":"new","n":1}')],
    ),
    "thinking": (
        None,
        [ASKED, assistant({"type": "thinking", "thinking": "Hm", "signature": ""}, text("a"), USE)],
        [SAID, {**CALLED, "content": "a", "reasoning_content": "Hm"}],
    ),
    "redacted thinking": (
        None,
        [ASKED, assistant({"type": "redacted_thinking", "data": "x"}, text("a"), text("b"))],
        [SAID, says("assistant", "ab")],
    ),
    "a call without arguments": (
        None,
        [ASKED, assistant({**USE, "input": {}})],
        [SAID, called(tool_call("toolu_1", "look"))],
    ),
    "a beginning of the reply": (
        None,
        [ASKED, says("assistant", "{")],
        [SAID, says("assistant", "{")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_messages(name: str) -> None:
    system, messages, expected = CASES[name]
    assert chat(*messages, system=system)["messages"] == expected


TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}, **MARK}
FUNCTION = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
OFFERED = {"tools": [{"type": "function", "function": FUNCTION}]}
FIELDS: list[tuple[Json, Json]] = [
    (
        {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 4},
        {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 4},
    ),
    ({"stop_sequences": ["END"]}, {"stop": ["END"]}),
    ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}, "service_tier": "auto"}, {}),
    ({"container": "c", "context_management": {"edits": []}, "metadata": {"user_id": "u"}}, {}),
    ({"output_config": {"effort": "high"}}, {}),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "output", "schema": {"type": "object"}, "strict": True},
            }
        },
    ),
    ({"tools": [TOOL]}, OFFERED),
    (
        {"tools": [{**TOOL, "type": "custom", "strict": True}]},
        {"tools": [{"type": "function", "function": {**FUNCTION, "strict": True}}]},
    ),
    ({"tools": [TOOL, {**TOOL, "name": "later", "defer_loading": True}]}, OFFERED),
    ({"tools": [TOOL], "tool_choice": {"type": "auto"}}, {**OFFERED, "tool_choice": "auto"}),
    ({"tools": [TOOL], "tool_choice": {"type": "any"}}, {**OFFERED, "tool_choice": "required"}),
    ({"tools": [TOOL], "tool_choice": {"type": "none"}}, {**OFFERED, "tool_choice": "none"}),
    (
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look"}},
        {**OFFERED, "tool_choice": {"type": "function", "function": {"name": "look"}}},
    ),
    (
        {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {**OFFERED, "tool_choice": "auto", "parallel_tool_calls": False},
    ),
    ({"tools": [], "tool_choice": {"type": "auto"}}, {}),
]


@pytest.mark.parametrize(("given_fields", "expected"), FIELDS)
def test_fields(given_fields: Json, expected: Json) -> None:
    assert chat(ASKED, **given_fields) == {"model": "m", "messages": [SAID], **expected}


SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
REFUSED: list[tuple[Json, str]] = [
    (
        {"messages": [user({"type": "document", "source": {"type": "base64"}})]},
        "messages[0].content[0].source",
    ),
    (
        {"messages": [user({"type": "image", "source": {"type": "file"}})]},
        "messages[0].content[0].source",
    ),
    ({"messages": [ASKED, {"role": "robot", "content": "x"}]}, "messages[1].role"),
    ({"messages": [ASKED, user(5)]}, "messages[1].content[0]"),
    ({"tools": [{"type": "memory_20250818", "name": "memory"}, TOOL]}, "tools[0]"),
    ({"tools": [5]}, "tools[0]"),
    ({"tools": [SEARCH]}, "tools"),
    (
        {"tools": [SEARCH, TOOL], "tool_choice": {"type": "tool", "name": "web_search"}},
        "tools",
    ),
    ({"mcp_servers": [{"type": "url", "url": "https://localhost/", "name": "some"}]}, "tools"),
    ({"thread": {"type": "create"}}, "thread"),
    ({"messages": ["Hello"]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    ({"system": [5]}, "system[0]"),
]


@pytest.mark.parametrize(("more", "param"), REFUSED)
def test_what_is_refused_says_where(more: Json, param: str) -> None:
    body = {"model": "m", "messages": [ASKED], **more}
    with pytest.raises(ProxyError) as caught:
        MESSAGES.to_chat(body, {})
    assert (caught.value.status, caught.value.param) == (400, param)
    assert count_tokens(body)["input_tokens"] >= 0


@pytest.mark.parametrize("kind", [[], {}, 7, None])
def test_a_block_of_no_kind_goes_on_as_its_json(kind: Any) -> None:
    (said,) = chat(user({"type": kind, "a": 1}))["messages"]
    assert json.loads(said["content"]) == {"type": kind, "a": 1}


def test_the_calls_that_failed_are_told_by_their_ids() -> None:
    marked = user(result("line 12: no such file", is_error=True))
    found = MESSAGES.to_chat({"model": "m", "messages": [ASKED, USED, marked]}, {})
    assert found.failed == {USED["content"][0]["id"]}
    said = user(result("Error: line 12", is_error=False))
    assert MESSAGES.to_chat({"model": "m", "messages": [ASKED, USED, said]}, {}).failed == set()
