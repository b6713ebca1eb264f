"""Calls as XML elements, and XML that is none; what is left of a call without its tokens."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.tool_validation.text_calls import Holdback, Rescued, rescue
from mlx_stack_proxy.tool_validation.tools import ToolSet
from tests.tool_validation.calls import STRING as TEXT
from tests.tool_validation.calls import parameters
from tests.tool_validation.test_text_samples import calls, evenly


def takes(*required: str, **more: dict[str, Any]) -> dict[str, Any]:
    return parameters(*required, **dict.fromkeys(required, TEXT), **more)


SCHEMAS = {
    "read_file": takes("path", offset={"type": "integer"}),
    "write_file": takes("path", "content"),
    "task": takes("description", prompt=TEXT),
    "note": takes("to", "from", "body"),
    "ask_user": takes("question", suggestions={"type": "array", "items": TEXT}),
    "edit_file": takes("path", "old_string", "new_string"),
    "run_command": takes("command", requires_approval={"type": "boolean"}),
    "write_todos": takes(
        todos={"type": "array", "items": parameters(task="string", done="boolean")}
    ),
    "use_mcp_tool": takes("server_name", "tool_name", "arguments"),
    "get_time": {"type": "object", "properties": {}},
    "item": takes("title", link=TEXT),
    "title": takes("text"),
    "summary": takes("text"),
    "clock": {"type": "object", "properties": {}},
}
TOOLS = ToolSet(SCHEMAS)


READ = "<read_file>\n<path>a.txt</path>\n</read_file>"
A_TXT = ("read_file", {"path": "a.txt"})
# A call may write half a document.
WRITE_HALF = "<write_file>\n<path>b</path>\n<content>\n<div>\n<p>\n</content>\n</write_file>"
WRITTEN = ("write_file", {"path": "b", "content": "<div>\n<p>"})
MEANT: list[tuple[str, list[tuple[str, Any]]]] = [
    (READ, [A_TXT]),
    ("<read_file>\r\n<path> a.txt </path>\r\n</read_file>", [A_TXT]),
    ("<read_file><path>a.txt</path><offset>5</offset></read_file>",
     [("read_file", {"path": "a.txt", "offset": 5})]),
    (f"I'll read it first.\n\n{READ}\n\nThen I'll change it.", [A_TXT]),
    (f"{READ}\n{READ.replace('a.txt', 'b.txt')}", [A_TXT, ("read_file", {"path": "b.txt"})]),
    # A model that stops at the closing tag does not write it.
    ("<read_file>\n<path>a.txt</path>\n", [A_TXT]),
    ("<get_time></get_time>", [("get_time", {})]),
    (
        "<write_file>\n<path>a.xml</path>\n<content>\n<content>\n  <path>x</path>\n</content>\n"
        "</content>\n</write_file>",
        [("write_file", {"path": "a.xml", "content": "<content>\n  <path>x</path>\n</content>"})],
    ),
    ("<tool_call>\n<name>clock</name>\n</tool_call>", [("clock", {})]),
    ("<tool_call>\n<clock>\n</clock>\n</tool_call>", [("clock", {})]),
    (f"<tool_call>\n{READ}\n{READ}\n</tool_call>", [A_TXT, A_TXT]),
    (f"<analysis>\nIt is short.\n</analysis>\n\n{READ}", [A_TXT]),
    (f"```html\n<div>\n<p>\n```\nThis is cut. I'll look at it.\n{READ}", [A_TXT]),
    (f"{WRITE_HALF}\n{READ}", [WRITTEN, A_TXT]),
    ('<tool_call name="read_file">\n<parameter name="path">a.txt</parameter>\n</tool_call>',
     [A_TXT]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), MEANT)
def test_what_is_meant_is_read(text: str, expected: list[tuple[str, Any]]) -> None:
    assert calls(evenly(text, TOOLS)) == expected


def written(content: str) -> str:
    return f"<write_file>\n<path>a</path>\n<content>{content}</content>\n</write_file>"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # The line breaks next to the tags are the tags'; all others are the file's.
        ("\nx = 1\n", "x = 1"),
        ("\r\nx = 1\r\ny = 2\r\n", "x = 1\r\ny = 2"),
        ("\n\ndef f():\n    return 1\n\n", "\ndef f():\n    return 1\n"),
        ("    x = 1", "    x = 1"),
        (" x = 1 ", "x = 1"),
        ("\n", ""),
        ("", ""),
        # XML's own ways to write what is none; where there are raw tags it is not in use.
        ("<![CDATA[\nif a < b && c:\n]]>", "if a < b && c:"),
        ("\nif a &lt; b &amp;&amp; c:\n", "if a < b && c:"),
        ("a && b &lt; c", "a && b &lt; c"),
        # XML in a file: what belongs together stays together.
        ("\n<content>x</content>\n<path>b</path>\n", "<content>x</content>\n<path>b</path>"),
        (f"\n{written('x')}\n", written("x")),
        ("Close it with </content> at the end.", "Close it with </content> at the end."),
        ("Open it with <content> first.", "Open it with <content> first."),
    ],
)
def test_a_text_is_what_was_meant(content: str, expected: str) -> None:
    found = evenly(written(content), TOOLS)
    assert calls(found) == [("write_file", {"path": "a", "content": expected})]


def test_a_tool_that_is_named_as_a_wrapper_is_that_tool() -> None:
    text = (
        "<use_mcp_tool>\n<server_name>s</server_name>\n<tool_name>forecast</tool_name>\n"
        '<arguments>\n{"city": "Rome"}\n</arguments>\n</use_mcp_tool>'
    )
    given = {"server_name": "s", "tool_name": "forecast", "arguments": '{"city": "Rome"}'}
    assert calls(rescue(text, TOOLS)) == [("use_mcp_tool", given)]
    inner = text.replace("forecast", "read_file").replace("city", "path")
    fewer = ToolSet({name: SCHEMAS[name] for name in SCHEMAS if name != "use_mcp_tool"})
    assert calls(rescue(inner, fewer)) == [("read_file", {"path": "Rome"})]


@pytest.mark.parametrize(
    "text",
    [
        "Here is the XML document you asked for:\n\n"
        "<note>\n<to>Tove</to>\n<from>Jani</from>\n<body>Hi</body>\n</note>",
        "```xml\n<note>\n<to>T</to>\n<from>J</from>\n<body>Hi</body>\n</note>\n```",
        "<tasks>\n<task>\n<description>A</description>\n</task>\n"
        "<task>\n<description>B</description>\n</task>\n</tasks>",
        "<title>My page</title>\n<p>hello</p>",
        # Without what the tool needs it is no call yet, and could be anything.
        "<write_file>\n<path>a.txt</path>\n</write_file>",
        "The `<read_file><path>x</path></read_file>` format is Cline's.",
        "I would use <read_file> with a <path> inside.",
        "We see assistantcommentary to=functions.read_file json in the log.",
        '{"read_file": {"path": "a.txt"}}',
        "<clock></clock>",
        "Use the element\n\n<clock>\n</clock>\n\nfor it.",
        "<rss>\n<channel>\n<title>N</title>\n<item>\n<title>A</title>\n</item>\n</channel>\n</rss>",
        # Any other name neither, where it is a part of a document.
        f"<config>\n<version>2</version>\n{READ}\n</config>",
        f"<h1>Help</h1>\n<div class='x'>\n<p>Read:</p>\n{READ}\n</div>",
        "The tag is\n<get_time>",
        # A list of names.
        '[{"name": "clock"}, {"name": "get_time"}]',
        '{"name": "clock"} is what I would send.',
    ],
)
def test_what_is_not_meant_stays_as_it_is(text: str) -> None:
    assert evenly(text, TOOLS) == Rescued((), text)


def test_only_what_may_become_a_tools_element_waits() -> None:
    holdback = Holdback(TOOLS)
    assert holdback.feed("Look:\n<p>one</p>\n<re") == "Look:\n<p>one</p>\n"
    assert holdback.feed("d>two</red>\n<read_file") == "<red>two</red>\n"
    assert holdback.feed("> is its name") == "<read_file> is its name"


def test_a_tools_tag_compiles_no_schema_while_the_text_arrives() -> None:
    """To compile one may hold the event loop for 50 ms; at the reply's end a thread does it."""
    tools = ToolSet({"look_up": {**takes("word"), "patternProperties": {r"\p{L}{20}": TEXT}}})
    hold = Holdback(tools)
    assert hold.feed("It is here.\n<look_up>\n<word>quokka</word>\n</look_up>") == "It is here.\n"
    assert not tools.is_quick("look_up")
    assert calls(hold.finish()) == [("look_up", {"word": "quokka"})]
