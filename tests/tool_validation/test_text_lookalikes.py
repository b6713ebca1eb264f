"""Texts that only look like calls come back as they are."""

from __future__ import annotations

import json

import pytest

from mlx_stack_proxy.tool_validation.text_calls import Rescued, rescue
from mlx_stack_proxy.tool_validation.tools import ToolSet
from tests.tool_validation.test_text_samples import EACH, JSON, PYTHON, SAMPLES, TOOLS

TAGGED = f"<tool_call>{JSON}</tool_call>"
IN_A_LINE = ("hermes_json", "qwen3_xml", "glm", "kimi_k2", "lfm2", "granite", "lm_studio")
MARKED = [
    text
    for name in ("hermes_json", "qwen3_xml", "mistral", "llama_python_tag", "lfm2")
    for text in SAMPLES[name]
]


@pytest.mark.parametrize("call", MARKED)
@pytest.mark.parametrize(
    "around",
    [
        "The model would write `{}` here.",
        'The tag "{}" starts a call.',
        "Look:\n```\n{}\n```\nThat is it.",
        "```python\ntext = '''{}'''\n```",
        "~~~text\n{}\n~~~",
        "<!-- {} -->",
    ],
)
def test_quotes_code_and_examples(around: str, call: str) -> None:
    text = around.replace("{}", call)
    assert rescue(text, TOOLS) == Rescued((), text)


@pytest.mark.parametrize(
    "text",
    [
        f'text = """{TAGGED}\n{JSON}\n"""\n',
        f"> {TAGGED}",
        f"```json\n{TAGGED}\n```",
        "The tags <tool_call> and </tool_call> stand around a call of find_book.",
        "<tool_call></tool_call>",
        "<tool_call>find a book</tool_call>",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        "<|tool_call_start|>[]<|tool_call_end|>",
        "[TOOL_CALLS][]",
        "<function=find_book>",
        "<function=find_book\n<b",
        '<function name="find_book"> opens a function',
        '<invoke name="find_book">',
        "<|python_tag|>import os\nprint(os.name)",
        "<｜tool▁output▁begin｜>find_book<｜tool▁output▁end｜>",
    ],
)
def test_markers_that_are_only_spoken_of(text: str) -> None:
    assert rescue(text, TOOLS).calls == ()
    assert rescue(text, TOOLS).content == text


OPEN = {"type": "object", "properties": {"title": {"type": "string"}}}
NEEDS = {**OPEN, "required": ["title"]}
DEFINED = [
    {"type": "function", "function": {"name": "find_book", "parameters": OPEN}},
    {"type": "function", "function": {"name": "find_book", "parameters": NEEDS}},
    {"type": "function", "function": {"name": "find_book", "description": "By its title."}},
    {"name": "find_book", "parameters": NEEDS},
    {"name": "find_book", "parameters": {"type": "object", "properties": {}}},
]


@pytest.mark.parametrize("defined", DEFINED, ids=json.dumps)
@pytest.mark.parametrize(
    "around", ["{}", "[{}]", "These are my tools:\n{}", "```json\n{}\n```", "<tools>\n{}\n</tools>"]
)
def test_what_a_tool_is_declared_as_calls_none(defined: object, around: str) -> None:
    text = around.replace("{}", json.dumps(defined))
    assert rescue(text, TOOLS) == Rescued((), text)


def test_a_tool_that_takes_a_schema_is_given_one() -> None:
    properties = {"type": {}, "properties": {"type": "object"}}
    tools = ToolSet({"make_form": OPEN | {"properties": properties}})
    call = json.dumps({"name": "make_form", "arguments": NEEDS})
    assert [json.loads(found.arguments) for found in rescue(call, tools).calls] == [NEEDS]


@pytest.mark.parametrize(
    "text",
    [
        f"Here is the JSON you asked for:\n```json\n{JSON}\n```",
        f"{JSON}\n\nShall I proceed?",
        f"```json\n{JSON}\n{{}}\n```",
        f"def books():\n    return [{PYTHON}]",
        f"```python\nbook = {PYTHON}\n```",
        f"```python\n{PYTHON}\nprint(1)\n```",
        f"```python\n{PYTHON}\n```\nThis finds it.",
        "```python\nfind_book(shelf=3)\n```",
        f"You could send {JSON} to the server.",
        f"call({JSON})",
        f'{{"plan": [{JSON}]}}',
        f"[1, {JSON}]",
        '{"name": "find_book", "price": 12}',
        '{"name": "find_book"}',
        '{"answer": {"name": "find_book", "arguments": {}}}',
        '{"arguments": {"title": "Momo"}}',
        # Python and prose.
        f"I would use {PYTHON} here.",
        f"[{PYTHON}](https://example.org)",
        "[find_book(title=open('x'))]",
        "```tool_code\nfor i in range(3):\n    find_book(title='a')\n```",
        "tool_code = 5",
        "Action: I will find the book.\nAction Input: none",
        "The next Action: find_book\nAction Input: {}",
        ">>> find_book\n{}",
        "[Calling tool: find_book]",
        "functools[0]",
        "⏺ find_book: Momo",
    ],
)
def test_json_python_and_prose_that_call_nothing(text: str) -> None:
    assert rescue(text, TOOLS) == Rescued((), text)


@pytest.mark.parametrize("call", [text for name, text in EACH if name in IN_A_LINE])
@pytest.mark.parametrize(
    "around",
    [
        "For example: {}",
        "A call looks like this:\n{}\nand the server reads it.",
        "Shall I run this? {} Just say yes.",
        'The column is called "id. {}',
        "Don't worry about the `shelf {}",
        "| Hermes | {} |",
    ],
)
def test_words_around_a_marked_call_say_nothing(around: str, call: str) -> None:
    found = rescue(around.replace("{}", call), TOOLS)
    assert [one.name for one in found.calls] == ["find_book"]
    assert found.content.startswith(around.partition("{")[0])


def test_a_marked_call_behind_json_that_is_shown() -> None:
    before = f"Here is the JSON for the call:\n\n```json\n{JSON}\n```\n\n"
    found = rescue(before + TAGGED, TOOLS)
    assert [one.name for one in found.calls] == ["find_book"]
    assert found.content == before
