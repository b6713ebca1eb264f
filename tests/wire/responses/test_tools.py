"""Tools as functions, and the way back."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.wire.fields import FRAME
from mlx_stack_proxy.wire.responses.tools import Shape, Tools, tools_of

Json = dict[str, Any]
READ = {"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}
GRAMMAR = (
    "start: begin_patch hunk+ end_patch\n"
    'begin_patch: "*** Begin Patch" LF\n'
    'end_patch: "*** End Patch" LF?\n\n'
    "hunk: add_hunk | delete_hunk\n"
)
FORMAT = {"type": "grammar", "syntax": "lark", "definition": GRAMMAR}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": FORMAT}
AGENTS = {
    "type": "namespace",
    "name": "agents",
    "description": "Sub-agents.",
    "tools": [{"type": "function", "name": "spawn"}, {"type": "custom", "name": "note"}],
}
SEARCH = {"type": "web_search", "external_web_access": False}


def of(*tools: Any, **body: Any) -> Tools:
    return tools_of({"tools": list(tools), **body})


def names(found: Tools) -> list[str]:
    return [tool["function"]["name"] for tool in found.fields.get("tools", [])]


def test_a_function_stays_one() -> None:
    function = {"name": "read", "strict": False, "parameters": {"type": "object"}}
    assert of(READ).fields["tools"] == [{"type": "function", "function": function}]
    assert of(READ, tool_choice="none").fields["tool_choice"] == "none"
    bare = of({"type": "function", "name": "now", "parameters": None, "strict": None})
    function = {"name": "now", "parameters": {"type": "object", "properties": {}}}
    assert bare.fields["tools"][0]["function"] == function


def test_each_shape_finds_its_way_back() -> None:
    found = of(READ, PATCH, AGENTS)
    assert names(found) == ["read", "apply_patch", "agents__spawn", "agents__note"]
    assert found.shapes["read"] == Shape("read")
    assert found.shapes["apply_patch"] == Shape("apply_patch", custom=True)
    assert found.shapes["agents__spawn"] == Shape("spawn", "agents")
    assert found.shapes["agents__note"] == Shape("note", "agents", custom=True)


def test_a_bare_name_is_enough_where_one_tool_has_it() -> None:
    twice = {**AGENTS, "name": "others"}
    assert of(AGENTS).shapes["spawn"] == Shape("spawn", "agents")
    assert of(AGENTS, twice).shapes["spawn"] == Shape("spawn")
    assert of(AGENTS, {"type": "function", "name": "spawn"}).shapes["spawn"] == Shape("spawn")


def test_a_custom_tool_takes_one_text_and_tells_its_grammar() -> None:
    function = of(PATCH).fields["tools"][0]["function"]
    assert function["description"].startswith("Edits.\n")
    assert GRAMMAR.strip() in function["description"]
    parameters = function["parameters"]
    assert parameters["required"] == list(parameters["properties"]) == ["input"]
    assert parameters["properties"]["input"][FRAME] == ["*** Begin Patch", "*** End Patch"]


@pytest.mark.parametrize(
    "grammar",
    [
        "",
        "start: word\nword: /[a-z]+/",
        'start: "a" b',
        "begin: x",
        'start: a b\na: "x"\nb: /y/',
        None,
    ],
)
def test_a_grammar_without_such_words_frames_nothing(grammar: Any) -> None:
    tool = {**PATCH, "format": {**FORMAT, "definition": grammar}}
    assert FRAME not in of(tool).fields["tools"][0]["function"]["parameters"]["properties"]["input"]


def test_what_is_not_run_here_is_left_out_and_named() -> None:
    found = of(READ, SEARCH, {"type": "image_generation"}, SEARCH)
    assert (names(found), found.left_out) == (["read"], ("web_search", "image_generation"))


@pytest.mark.parametrize("choice", ["auto", {"type": "web_search"}, None])
def test_what_is_not_run_here_alone_is_refused(choice: Any) -> None:
    with pytest.raises(ProxyError) as refused:
        of(SEARCH, tool_choice=choice)
    assert (refused.value.status, refused.value.param) == (400, "tools")


def test_what_is_not_run_here_forced_is_refused() -> None:
    with pytest.raises(ProxyError) as refused:
        of(READ, SEARCH, tool_choice={"type": "web_search"})
    assert refused.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "name": "read"}, "read"),
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "function", "name": "spawn", "namespace": "agents"}, "agents__spawn"),
        ({"type": "function", "name": "spawn"}, "agents__spawn"),
    ],
)
def test_a_choice_of_one_tool(choice: Json, name: str) -> None:
    found = of(READ, PATCH, AGENTS, tool_choice=choice).fields["tool_choice"]
    assert found == {"type": "function", "function": {"name": name}}


def test_only_allowed_tools_are_offered() -> None:
    allowed = [{"type": "function", "name": "read"}, {"type": "namespace", "name": "agents"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": [*allowed, SEARCH]}
    found = of(READ, PATCH, AGENTS, tool_choice=choice)
    assert names(found) == ["read", "agents__spawn", "agents__note"]
    assert found.fields["tool_choice"] == "required"


def test_what_is_said_of_tools_needs_tools() -> None:
    """Codex asks so for a summary; servers refuse a choice among no tools."""
    assert tools_of({"tool_choice": "auto", "parallel_tool_calls": False}).fields == {}
    assert of(READ, parallel_tool_calls=False).fields["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [1]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"name": "x"}]}, "tools[0].type"),
        ({"tools": [{**AGENTS, "tools": [{"type": "custom"}]}]}, "tools[0].tools[0].name"),
        ({"tools": [READ], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [READ], "tool_choice": 1}, "tool_choice"),
    ],
)
def test_what_makes_no_sense_is_refused(body: Json, param: str) -> None:
    with pytest.raises(ProxyError) as refused:
        tools_of(body)
    assert (refused.value.status, refused.value.param) == (400, param)
