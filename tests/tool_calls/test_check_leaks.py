"""Markers of chat templates that a server left in a value, and those that the value is about."""

from __future__ import annotations

import json

import pytest

from app.tool_calls.conversation import conversation_lookup
from tests.tool_calls.calls import STRING, kinds, of, one, parameters, said

MARKERS = [
    "</parameter>", "</parameter>\n</function>", "</function>", "<|im_end|>", "<|eot_id|>",
    "<|end|>", "<|call|>", "<|message|>", "</s>", "<end_of_turn>", "</minimax:tool_call>",
    "[TOOL_CALLS]", '<|"|>', "<|endoftext|>", "<｜end▁of▁sentence｜>", "</seed:tool_call>",
    "<end_function_call>", "</invoke>", "</invoke>\n</function_calls>",
]  # fmt: skip


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", "src/a.py"),
        ("path", "src/"),
        ("file_name", "a b.txt"),
        ("directory", "."),
        ("url", "https://example.com/?q=1"),
        ("order_id", "A-1002"),
        ("city", "New York"),
        ("command", "ls -la src/"),
        ("sql", "select 1"),
        ("cmd", "grep 'a' b | wc -l"),
    ],
)
def test_a_marker_of_a_template_at_the_end_of_a_value(name: str, value: str, marker: str) -> None:
    assert of(name, value + marker) == ["leaked_markup"]
    assert of(name, f"{value}\n{marker}\n") == ["leaked_markup"]


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_behind_a_path_that_is_optional_or_escaped(marker: str) -> None:
    assert "leaked_markup" in of("path", f"a.py {marker}")
    tools = one(parameters(paths={"type": "array", "items": STRING}))
    text = json.dumps({"paths": ["a.py", f"b.py{marker}"]})
    assert kinds(text, tools) == ["leaked_markup"]
    for escape in ("\\u003c", "\\u003C"):
        assert kinds(text.replace("<", escape), tools) == ["leaked_markup"]


@pytest.mark.parametrize("opener", ["<parameter=path>", '<parameter name="path">', '<|"|>'])
@pytest.mark.parametrize("name", ["path", "command"])
def test_a_marker_at_the_start_of_a_value(opener: str, name: str) -> None:
    assert of(name, f"{opener}ls") == ["leaked_markup"]


def test_a_marker_at_the_end_of_a_long_command() -> None:
    command = "cd src && " + "make all && " * 100 + "ls"
    assert of("command", command) == []
    assert of("command", f"{command}\n</parameter>\n</function>") == ["leaked_markup"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("command", "npm test<|im_end|>\n<|im_start|>assistant"),
        ("path", "a.py<end_of_turn>\n<start_of_turn>model\n"),
        ("sql", "select 1;\n</parameter>\n</invoke>\n</minimax:tool_call>"),
    ],
)
def test_several_markers_at_the_end_of_a_value(name: str, value: str) -> None:
    assert of(name, value) == ["leaked_markup"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, f"a{marker}") for marker in MARKERS for name in ("content", "code", "prompt")),
        *((name, "</s>") for name in ("stop", "stop_token", "tag", "title")),
        *((name, "<|im_end|>") for name in ("stop", "eos_token", "name", "title")),
        ("command", "grep -c '</parameter>' a.xml"),
        ("command", "sed -i 's/<|im_end|>//' a.jinja"),
        ("command", "echo '<s>old</s>'"),
        ("command", "python -c \"print('</s>')\""),
        ("command", "cat > a.xml <<EOF\n<function>\n</function>\nEOF"),
        ("command", "printf '%s' \"<|im_start|>user\nhi<|im_end|>\" | nc -l 80"),
        ("command", "cat a.txt | grep -F [TOOL_CALLS]"),
        ("command", "sort < a.txt > b.txt"),
        ("command", "git log --format='<%an>'"),
        ("command", "python train.py --eos <|im_end|>"),
        ("command", "cmd /c type a.txt | findstr /c:</s>"),
        ("sql", "SELECT 1 -- </s>"),
        ("pattern", r"<function=(\w+)>"),
        ("pattern", "<parameter=query>"),
        ("query", "eos_token.*</s>"),
        ("query", '<invoke name="search">'),
        ("query", "what is a stop token</s>"),
        ("query", "best cats<|im_end|>"),
        ("title", "Strip trailing</s>"),
        ("url", "https://example.com/search?q=foo+</s>"),
        ("path", "app/[ARGS]"),
        ("path", "fixtures/<|endoftext|>.txt"),
        ("username", "<|bot|>"),
        ("query", "what does </s> mean"),
        ("query", "what is <|im_end|>"),
        ("query", "how to close </parameter>"),
        ("query", "meaning of [TOOL_CALLS]"),
        ("query", "<|im_start|>user hi<|im_end|>"),
        ("query", "<s>text</s>"),
        ("pattern", "text</parameter>"),
        ("regex", r"(?s)<function>.*</function>"),
        ("title", "The parser drops </s>"),
        ("text", "The call ends with\n</parameter>\n</function>"),
        ("instructions", "End with\n</parameter>\n</function>"),
        ("selector", "div > a"),
        ("url", "https://example.com/?q='</s>'"),
        ("url", "https://example.com/?q=<s>x</s>"),
        ("path", "app/[id]/page.tsx"),
        ("email", "A <a@example.com>"),
        ("file", "List<String>.java"),
    ],
)
def test_a_marker_that_is_meant(name: str, value: str) -> None:
    assert of(name, value) == []


def test_a_marker_that_stands_in_the_conversation() -> None:
    known = conversation_lookup(said("our templates end with <|im_end|>", "read a<|im_end|>.txt"))
    tools = one(parameters("path", path="string", query="string"))
    assert kinds('{"path": "read a<|im_end|>.txt"}', tools, known=known) == []
    assert kinds('{"path": "b.txt<|im_end|>"}', tools, known=known) == ["leaked_markup"]
