"""What is doubted of a valid call, and what never is; texts that may hold a call."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.tool_validation.doubts import DOUBTS
from mlx_stack_proxy.tool_validation.unread import MAX_TEXT, unread_call
from mlx_stack_proxy.wire.fields import FRAME
from tests.tool_validation.calls import STRING, called, doubted, parameters, said
from tests.tool_validation.test_text_samples import JSON, PYTHON, TOOLS

PAIR = parameters("path", "text", path="string", text="string", note="string")


@pytest.mark.parametrize("empty", ["", " ", "\n\t"])
def test_a_required_text_that_is_empty(empty: str) -> None:
    assert doubted({"path": "a", "text": empty}, PAIR) == ["empty_value"]
    assert doubted({"path": empty, "text": empty}, PAIR) == ["empty_value"] * 2
    assert doubted({"path": "a", "text": "b", "note": empty}, PAIR) == []


LISTED = parameters("paths", paths={"type": "array", "items": STRING}, notes={"type": "array"})


@pytest.mark.specification(45)
def test_a_required_list_that_is_empty() -> None:
    assert doubted({"paths": []}, LISTED) == ["empty_value"]
    assert doubted({"paths": ["a"], "notes": []}, LISTED) == []
    assert doubted({"paths": []}, LISTED, [called({"paths": []})]) == []
    assert doubted({"paths": []}, parameters("paths", paths={"enum": [[], ["a"]]})) == []
    nested = parameters("a", a=LISTED)
    assert doubted({"a": {"paths": []}}, nested) == ["empty_value"]


def test_a_text_that_was_empty_before_may_be_empty() -> None:
    given = {"path": "a", "text": ""}
    assert doubted(given, PAIR, [called({"path": "b", "text": " "})]) == []
    others = (
        called({"path": "", "text": "b"}),
        called({"path": "b", "text": ""}, name="g"),
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
        {"role": "assistant", "tool_calls": "odd", "content": ""},
    )
    assert doubted(given, PAIR, others) == ["empty_value"]


@pytest.mark.parametrize(
    "schema",
    [{"enum": ["", "a"]}, {"type": ["string", "null"]}, {}, {"type": "string", "enum": ["", "b"]}],
)
def test_a_text_that_the_schema_lets_be_empty(schema: Any) -> None:
    assert doubted({"a": ""}, parameters("a", a=schema)) == []


def test_texts_within_objects_and_lists() -> None:
    inner = parameters("name", name="string")
    schema = parameters("a", a=inner, b={"type": "array", "items": inner})
    given = {"a": {"name": ""}, "b": [{"name": "x"}, {"name": "..."}]}
    assert sorted(doubted(given, schema)) == ["empty_value", "placeholder"]


FRAMED = parameters("input", input={"type": "string", FRAME: ["*** Begin Patch", "*** End Patch"]})


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("*** Begin Patch\n*** End Patch\n", []),
        ("\n*** Begin Patch\n*** Add File: a\n+a\n*** End Patch", []),
        ("*** Begin Patch\n*** Add File: a\n+a\n", ["unframed_text"]),
        ("--- a\n+++ b\n*** End Patch", ["unframed_text"]),
        ("", ["empty_value"]),
    ],
)
def test_a_text_that_begins_and_ends_as_its_grammar_says(text: str, kinds: list[str]) -> None:
    assert doubted({"input": text}, FRAMED) == kinds
    assert doubted({"input": text}, FRAMED, off=frozenset(kinds)) == []
    assert doubted({"input": text}, parameters(input="string")) == []


@pytest.mark.parametrize("odd", [[], ["a"], [1, 2], {"a": 1}, None, "ab"])
def test_a_frame_that_makes_no_sense_frames_nothing(odd: Any) -> None:
    assert doubted({"input": "x"}, parameters(input={"type": "string", FRAME: odd})) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("city", "..."),
        ("city", "…"),
        ("city", "<city>"),
        ("city", "[insert city]"),
        ("city", "string"),
        ("city", "YOUR_CITY_HERE"),
        ("city", "your city"),
        ("city", "city-name"),
        # A parameter's own name of several words, a template's variable.
        ("user_id", "user_id"),
        ("user_id", "user id"),
        ("user_id", "{{user_id}}"),
    ],
)
def test_a_placeholder(name: str, value: str) -> None:
    schema = parameters(**{name: "string"})
    assert doubted({name: value}, schema) == ["placeholder"]
    assert doubted({name: value}, schema, said(f"Use {value} as it is.")) == []
    named = parameters(**{name: {"type": "string", "description": "as", "default": value}})
    surely = value in ("string", name)
    assert doubted({name: value}, named) == (["placeholder"] if surely else [])


@pytest.mark.parametrize(
    "value",
    [
        "city",
        "Mexico city of the north",
        "a<b",
        "[1, 2]",
        '["a"]',
        "<b>x</b>",
        "List[str]",
        "TODO",
        "<!-- x -->",
        "src/city_map.py",
        "x" * 100,
    ],
)
def test_no_placeholder(value: str) -> None:
    assert doubted({"city": value}, parameters(city="string")) == []


@pytest.mark.parametrize(
    "given",
    [
        {"path": "a.txt</parameter>"},
        {"path": "a.txt</arg_value><arg_key>b"},
        {"command": "x" * 500 + "<|im_end|>"},
        {"page<arg_key": "7"},
        {"path": "{}<|tool_call_argument_begin|>{"},
    ],
)
def test_marks_of_calls_in_values(given: dict[str, str]) -> None:
    assert doubted(given, None) == ["leaked_markup"]


def test_a_text_may_be_about_marks() -> None:
    page = "The model writes <|im_end|> behind each message. " * 20
    assert doubted({"text": page}, None) == []
    assert doubted({"q": "</tool_call> missing"}, None, said("why is </tool_call> missing?")) == []


@pytest.mark.parametrize("kind", DOUBTS)
def test_each_doubt_can_be_left_out(kind: str) -> None:
    given = {
        "a": "",
        "city": "<city>",
        "b": "x</parameter>",
        "order": "887449",
        "type": "x",
        "file": "C:\new",
    }
    framed = {"type": "string", FRAME: ["<a>", "</a>"]}
    schema = parameters("a", a=STRING, city=STRING, b=framed, order=STRING, file=STRING)
    every = doubted(given, schema, said("8874449"))
    assert set(every) == set(DOUBTS)
    assert set(doubted(given, schema, said("8874449"), frozenset({kind}))) == {*DOUBTS} - {kind}


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\nfind_book: Momo\n</tool_call>",
        f"<tool_calls>find_book {JSON}",
        "<find_book>Momo</find_book>",
        "<name>find_book\n</parameter>\n<parameter=title>\nMomo\n</parameter>\n</function>",
        f"I'll look it up.\n\n{JSON}",
        f"```json\n{JSON}\n```\nThis looks it up.",
        f"<think>Hm.</think>\n{PYTHON}",
        f"So:\n```python\n{PYTHON}\n```",
        f"I'll look.\n\n[{PYTHON}]",
        f"Now: {PYTHON}",
        'Calling find_book with {"title": "Momo"}',
        'find_book{"title": "Momo"}',
        '{"thought": "look", "action": "find_book", "action_input": {"title": "Momo"}}',
        'Look: {"name": "find_book", "arguments": {"name": "Momo"}}',
        'Look: {"name": "find_book", "arguments": {"title": Momo}}',
        'I look.\n{"name": "find_book", "arguments": {"title": "Mo',
        'I look.\nfind_book(name="Momo")',
        'tool name="find_book">\nMomo\ntool>',
        "[tool_call: find_book for 'Momo']",
        '<find_book title="Momo"/>',
    ],
)
def test_a_text_that_may_hold_a_call(text: str) -> None:
    assert unread_call(text, TOOLS) == "find_book"


@pytest.mark.parametrize(
    "text",
    [
        "The book is Momo.",
        "I will call find_book now.",
        "Use the `<tool_call>` tag to call find_book.",
        f"`{JSON}`",
        f"`{PYTHON}`",
        'The book is {"title": "Momo"}.',
        f"<think>{JSON}</think>Momo.",
        '{"name": "Momo", "arguments": {}}',
        '{"title": "Momo", "year": 1973}',
        "find_book(title=x)",
        'It is find_book(name="Momo") that fails.',
        '{"name": "Momo", "arguments": {"title": Momo}}',
        "find_book is called in `</function>` tags.",
        'The form is "<tool_call><function=find_book></function></tool_call>".',
        "Run this:\n```bash\nfind_book --title Momo\n```",
        f"{JSON}\n" + "x" * MAX_TEXT,
        "",
    ],
)
def test_a_text_that_holds_none(text: str) -> None:
    assert unread_call(text, TOOLS) is None
