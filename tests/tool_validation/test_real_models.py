"""Replies of real small models: calls in doubled braces, and calls of tools that aren't offered."""

from __future__ import annotations

import json

import pytest

from mlx_stack_proxy.tool_validation.text_calls import Holdback
from mlx_stack_proxy.tool_validation.unread import made_up_result
from tests.tool_validation import test_text_samples as samples
from tests.tool_validation.calls import tool
from tests.tool_validation.test_text_samples import ARGUMENTS, JSON, MOMO, TOOLS, evenly
from tests.tool_validation.tool_replies import Json, asked, call, judged, message

BARE = '"name": "find_book", "arguments": {"title": "Momo", "year": 1973}'
UNOFFERED = '{"name": "burn_book", "arguments": {"title": "Momo"}}'


def calls(text: str) -> list[tuple[str, Json]]:
    return samples.calls(evenly(text))


@pytest.mark.parametrize("opening", ["{{", "{{{", "{{{{"])
@pytest.mark.parametrize("closing", ["", "}", "}}", "}}}", "}}}}"])
@pytest.mark.parametrize(
    "around", ["{}", "```json\n{}\n```", "<tool_call>\n{}\n</tool_call>", "[{}]", "{}\n"]
)
def test_doubled_braces(opening: str, closing: str, around: str) -> None:
    """Some chat templates show a call so: https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct"""
    found = evenly(around.replace("{}", f"{opening}{BARE}}}{closing}"))
    assert (samples.calls(found), found.content.strip()) == ([MOMO], "")


@pytest.mark.parametrize("between", ["\n", ", ", ",\n", ";\n", "\n\n"])
def test_several_calls_in_doubled_braces(between: str) -> None:
    text = between.join(["{{" + BARE + "}}}"] * 2)
    assert calls(text) == [MOMO, MOMO]


def test_doubled_braces_around_arguments_and_python_quotes() -> None:
    assert calls('{{"name": "find_book", "arguments": {"title": \'{"a": 1}\'}}}') == [
        ("find_book", {"title": '{"a": 1}'})
    ]


def test_doubled_braces_are_reported() -> None:
    text = '{{"name": "search", "arguments": {"query": "x"}}}'
    outcome = judged(message(text=text))
    assert outcome.calls == [("search", {"query": "x"})]
    assert outcome.repairs == "doubled_braces,rescued"


def test_a_sign_of_a_mark_before_the_call() -> None:
    found = evenly(f">{JSON}\n")
    assert (samples.calls(found), found.content.strip()) == ([MOMO], "")
    assert calls(f"> {JSON}") == []  # a quoted line


def test_a_call_behind_definitions() -> None:
    definition = '{"type": "function", "function": {"name": "find_book", "description": ""}}'
    assert calls(f"<tools>\n{definition}\n{JSON}\n</tools>") == [MOMO]
    assert calls(f"<tools>\n{definition}\n</tools>") == []
    assert calls(f"<tools>\n{definition}\n{JSON}\n</tools>\nThese are my tools.") == []


ALONE = [
    UNOFFERED,
    "{" + UNOFFERED + "}",
    f"```json\n{UNOFFERED}\n```",
    f"```\n{UNOFFERED}\n```",
    f">{UNOFFERED}",
    f"<tools>\n{UNOFFERED}\n</tools>",
    f"{UNOFFERED}, {UNOFFERED}",
    f"{UNOFFERED}\n{UNOFFERED}\n",
    f"[{UNOFFERED}]",
    UNOFFERED[:-1],
    '{"name": "rename", "arguments": {"path": "a", "path": "b"}}',
    '{\n  "name": "burn_book",\n  "parameters": {}\n}',
]


@pytest.mark.parametrize("text", ALONE)
def test_a_call_of_a_tool_that_is_not_offered_is_doubted(text: str) -> None:
    assert calls(text) == []
    assert not "".join(map(Holdback(TOOLS).feed, text)).strip()
    outcome = judged(message(text=text))
    assert (outcome.kinds, outcome.doubted) == (["unknown_tool"], True)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada", "age": 36}',
        '{"name": "left-pad", "version": "1.0.0", "arguments": {}}',
        '{"name": "Ada"}',
        '{"name": "f", "arguments": ["a", "b"]}',
        '{"name": "f", "arguments": {"a": 1}, "returns": "int"}',
        '{"label": "burn_book", "arguments": {}}',
        f"So a call would be:\n{UNOFFERED}",
        f"{UNOFFERED}\nThat would burn it.",
        '```json\n{"name": "Ada", "age": 36}\n```',
        f"> {UNOFFERED}",
        '<tools>\n<tool name="hammer"/>\n</tools>',
    ],
)
def test_an_answer_in_json_is_not_doubted(text: str) -> None:
    assert calls(text) == []
    assert judged(message(text=text)).verdict is None


def test_an_answer_in_json_flows_once_it_is_no_call() -> None:
    held = Holdback(TOOLS)
    assert held.feed('{"name": "Ada", "a') == ""
    assert held.feed('ge"') == '{"name": "Ada", "age"'


def test_of_several_calls_one_is_not_offered() -> None:
    text = f'{{"name": "list_files", "arguments": {{}}}},\n{UNOFFERED}'
    outcome = judged(message(text=text))
    assert (outcome.kinds, outcome.doubted) == (["unknown_tool"], False)


def test_what_the_client_asked_for_is_not_doubted() -> None:
    for body in (
        {"response_format": {"type": "json_object"}},
        {"tool_choice": "none"},
        {"tools": []},
    ):
        assert judged(message(text=UNOFFERED), asked(**body)).verdict is None
    assert judged(message(text=UNOFFERED, finish="length")).verdict is None
    assert judged(message(text=UNOFFERED), validate_tool_names=False).verdict is None


def test_a_call_whose_arguments_look_like_a_schema() -> None:
    """A model put the values of its arguments below ``properties``."""
    arguments = '{"type": "object", "properties": {"title": "Momo"}, "required": []}'
    text = f'{{"name": "find_book", "arguments": {arguments}}}'
    assert calls(text) == [("find_book", json.loads(arguments))]
    assert calls(text.replace('"arguments"', '"parameters"')) == []
    assert calls(f'{{"name": "find_book", "parameters": {ARGUMENTS}}}') == [MOMO]


def test_a_copied_keyword_of_the_schema_is_left_out() -> None:
    """In nearly every call of a model of 0.5B parameters."""
    copied = '{"query": "x", "required": ["query"]}'
    outcome = judged(message(call("search", copied)))
    assert outcome.calls == [("search", {"query": "x"})]
    assert outcome.repairs == "schema_keyword"
    assert judged(message(call("search", copied)), repair="off").kinds == ["schema_keyword"]


@pytest.mark.parametrize("more", ['"required": ["path"]', '"properties": {"limit": 5}'])
def test_another_value_of_a_keyword_is_doubted(more: str) -> None:
    outcome = judged(message(call("search", f'{{"query": "x", {more}}}')))
    assert (outcome.kinds, outcome.doubted) == (["schema_keyword"], True)


def test_a_parameter_may_be_called_as_a_keyword_is() -> None:
    properties = {"type": {"type": "string"}, "required": {"type": "array"}}
    schema = {"type": "object", "properties": properties, "required": ["type"]}
    made = tool("add_field", schema)
    arguments = '{"type": "object", "required": ["type"]}'
    outcome = judged(message(call("add_field", arguments)), asked(tools=[made]))
    assert outcome.verdict is None
    assert outcome.choice["message"]["tool_calls"][0]["function"]["arguments"] == arguments


def test_a_run_of_whole_calls_before_a_length_cut_goes_out() -> None:
    """A model read ``a.txt … l.txt`` up to its limit; nothing proves these calls wrong."""
    written = [
        f'{{"name": "write_file", "arguments": {{"path": "{c}", "content": "x"}}}}'
        for c in "abcdefghijkl"
    ]
    cut = "\n".join([*written, written[0][:40]])
    outcome = judged(message(text=cut, finish="length"))
    assert [arguments["path"] for _, arguments in outcome.calls] == list("abcdefghijkl")
    assert outcome.choice["finish_reason"] == "length"


@pytest.mark.parametrize(
    "text",
    [
        f"<tools>\n  <function>\n    {{{BARE}}}\n  </function>\n</tools>",
        f"<tools><function>{{{BARE}}}</function>",
    ],
)
def test_a_call_in_an_element_among_the_tools_is_one(text: str) -> None:
    assert calls(text) == [MOMO]


@pytest.mark.parametrize(
    ("text", "made_up"),
    [
        ("<tool_response>\n3,Cyd\n</tool_response>", True),
        ("<think>Hm.</think>\n<|tool_response|>{}<|/tool_response|>", True),
        ('<function_results>{"temp": 3}', True),
        ("<tool_response>3</tool_response>\nIt is Cyd.", False),
        ("The server writes <tool_response>3</tool_response>", False),
        ("<tool_response>a</tool_response><tool_response>b</tool_response>", False),
        ("<response>3</response>", False),
    ],
)
def test_a_result_is_nothing_that_a_model_gives(text: str, made_up: bool) -> None:
    assert (made_up_result(text) is not None) == made_up
