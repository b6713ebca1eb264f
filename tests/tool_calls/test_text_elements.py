"""Calls as XML elements, and XML that is none; what is left of a call without its tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.tool_calls.text_calls import Holdback, Rescued, rescue

TEXT = {"type": "string"}


def takes(*required: str, **more: dict[str, Any]) -> dict[str, Any]:
    properties = dict.fromkeys(required, TEXT) | more
    return {"type": "object", "properties": properties, "required": list(required)}


TOOLS = {
    "read_file": takes("path", offset={"type": "integer"}),
    "write_file": takes("path", "content"),
    "task": takes("description", prompt=TEXT),
    "note": takes("to", "from", "body"),
    "ask": takes("question", suggestions={"type": "array", "items": TEXT}),
    "title": takes("text"),
    "summary": takes("text"),
    "clock": {"type": "object", "properties": {}},
}


def calls(found: Rescued) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in found.calls]


def streamed(text: str) -> Rescued:
    holdback = Holdback(TOOLS)
    flowed = "".join(holdback.feed(one) for one in text)
    rest = holdback.finish()
    return Rescued(rest.calls, flowed + rest.content, rest.unknown)


READ = "<read_file>\n<path>a.txt</path>\n</read_file>"
A_TXT = ("read_file", {"path": "a.txt"})
MEANT: list[tuple[str, list[tuple[str, Any]]]] = [
    (READ, [A_TXT]),
    ("<read_file>\r\n<path> a.txt </path>\r\n</read_file>", [A_TXT]),
    ("<read_file><path>a.txt</path><offset>5</offset></read_file>",
     [("read_file", {"path": "a.txt", "offset": 5})]),
    (f"I'll read it first.\n\n{READ}\n\nThen I'll change it.", [A_TXT]),
    (f"<think>\nWhat is in it?\n</think>\n{READ}", [A_TXT]),
    (f"{READ}\n{READ.replace('a.txt', 'b.txt')}", [A_TXT, ("read_file", {"path": "b.txt"})]),
    # A model that stops at the closing tag does not write it.
    ("<read_file>\n<path>a.txt</path>\n", [A_TXT]),
    ("<clock></clock>", [("clock", {})]),
    (
        "<write_file>\n<path>a.xml</path>\n<content>\n<content>\n  <path>x</path>\n</content>\n"
        "</content>\n</write_file>",
        [("write_file", {"path": "a.xml", "content": "<content>\n  <path>x</path>\n</content>"})],
    ),
    ("<tool_call>\n<name>clock</name>\n</tool_call>", [("clock", {})]),
    ("<tool_call>\n<clock>\n</clock>\n</tool_call>", [("clock", {})]),
    (f"<tool_call>\n{READ}\n{READ}\n</tool_call>", [A_TXT, A_TXT]),
    ('<tool_call name="read_file">\n<parameter name="path">a.txt</parameter>\n</tool_call>',
     [A_TXT]),
    # What can't be read is a call all the same: the model is asked once more.
    ("<tool_use>\n<name>read_file</name>\n<arguments>path: a.txt</arguments>\n</tool_use>", []),
    ('call:read_file{path:<|"|>a.txt<|"|>}', [A_TXT]),
    ('call:read_file(path="a.txt")', [A_TXT]),
    ("call:read_file{path:a.txt}", [A_TXT]),
    ('{"name": "read_file", "arguments": {"path": "a.txt"}}\n{"name": "clock"}',
     [A_TXT, ("clock", {})]),
    ('{"name": "clock"}\n{"name": "read_file", "arguments": {"path": "a.txt"}}',
     [("clock", {}), A_TXT]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), MEANT)
def test_what_is_meant_is_read(text: str, expected: list[tuple[str, Any]]) -> None:
    found = rescue(text, TOOLS)
    if expected:
        assert calls(found) == expected
    else:
        assert [call.arguments for call in found.calls] == ["path: a.txt"]
    assert streamed(text) == found


def test_a_list_of_elements_is_left_for_the_model_to_say_anew() -> None:
    found = rescue(
        "<ask>\n<question>Which?</question>\n<suggestions>\n<suggestion>A</suggestion>\n"
        "<suggestion>B</suggestion>\n</suggestions>\n</ask>",
        TOOLS,
    )
    (call,) = found.calls
    assert isinstance(json.loads(call.arguments)["suggestions"], str)


@pytest.mark.parametrize(
    "text",
    [
        "Here is the XML document you asked for:\n\n"
        "<note>\n<to>Tove</to>\n<from>Jani</from>\n<body>Hi</body>\n</note>",
        "<note>\n<to>Tove</to>\n<from>Jani</from>\n<heading>R</heading>\n<body>Hi</body>\n</note>",
        '<?xml version="1.0"?>\n<note>\n<to>T</to>\n<from>J</from>\n<body>Hi</body>\n</note>',
        "```xml\n<note>\n<to>T</to>\n<from>J</from>\n<body>Hi</body>\n</note>\n```",
        "<tasks>\n<task>\n<description>A</description>\n</task>\n"
        "<task>\n<description>B</description>\n</task>\n</tasks>",
        '<list id="1">\n<task>\n<description>A</description>\n</task>\n</list>\nThat is all.',
        "<title>My page</title>\n<p>hello</p>",
        "<details>\n<summary>More</summary>\nSome text.\n</details>",
        # Without what the tool needs it is no call yet, and could be anything.
        "<write_file>\n<path>a.txt</path>\n</write_file>",
        "<read_file>\n<path>a.txt</path>\n<path>b.txt</path>\n</read_file>",
        f"For example:\n{READ}",
        f"To read a file, you would write:\n\n{READ}\n",
        "The `<read_file><path>x</path></read_file>` format is Cline's.",
        "I would use <read_file> with a <path> inside.",
        "<tool_use> is what Claude writes.",
        '<tool name="hammer">heavy</tool>',
        '<tools>\n<tool name="read_file">Reads a file</tool>\n</tools>',
        "call: 555-1234 for help",
        "call: read_file is what I'd do",
        "<invoke>x</invoke>",
        "We see assistantcommentary to=functions.read_file json in the log.",
        '{"read_file": {"path": "a.txt"}}',
        '{"name": "clock"} is what I would send.',
    ],
)
def test_what_is_not_meant_stays_as_it_is(text: str) -> None:
    assert rescue(text, TOOLS) == Rescued((), text)
    assert streamed(text) == Rescued((), text)


def test_only_what_may_become_a_tools_element_waits() -> None:
    holdback = Holdback(TOOLS)
    assert holdback.feed("Look:\n<p>one</p>\n<re") == "Look:\n<p>one</p>\n"
    assert holdback.feed("d>two</red>\n<read_file") == "<red>two</red>\n"
    assert holdback.feed("> is its name") == "<read_file> is its name"
