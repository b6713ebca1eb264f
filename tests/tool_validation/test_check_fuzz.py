"""Whatever a model writes: no exception, no changed good call, no repair that loses or invents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mlx_stack_proxy.tool_validation.check import check_call, check_response_format
from mlx_stack_proxy.tool_validation.tools import tool_set
from tests.tool_validation.calls import one, parameters, tool
from tests.tool_validation.floods import FLOODS

FREE = one({"type": "object"})
SHAPED = tool_set(
    [
        tool(
            "edit_file",
            {
                **parameters(
                    "path", "text",
                    path="string", text="string", count="integer", ratio="number", dry="boolean",
                    tags={"type": "array", "items": {"type": "string"}},
                    where=parameters(line="integer", deep="object"),
                    unit={"type": "string", "enum": ["chars", "lines"]},
                ),
                "additionalProperties": False,
            },
        ),
        tool("search", parameters("query", query="string")),
    ]
)  # fmt: skip

JUNK = st.text(alphabet="{}[]\"'\\:,`<>|/ \nabN1.-eE_truefalsn", max_size=60)
PIECES = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", '"', "'", "\\", ":", ",", "```", "json", "true", "None", "1", "1.5e3",
         '"path"', '"a"', "text", "\n", " ", "//", "/*", "*/", "\ud800", "\\u12", "<|im_end|>",
         '{"path": "a"}', '{"path": "a", "text": "b"}', '"path": "x"', "arguments"]
    ),
    max_size=14,
).map("".join)  # fmt: skip
KEYS = st.text("abcdef_", min_size=1, max_size=5)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)


@given(JUNK | PIECES | st.text(max_size=80), st.sampled_from(["edit_file", "search", "x", ""]))
def test_no_input_raises(text: str, name: str) -> None:
    for arguments in (text, '{"path": "a", "text": ' + text):
        checked = check_call(name, arguments, SHAPED)
        if checked.failures:
            assert (checked.name, checked.arguments, checked.repairs) == (name, arguments, ())
        else:
            assert checked.name in SHAPED
            value = json.loads(checked.arguments)
            assert isinstance(value, dict)
            again = check_call(checked.name, checked.arguments, SHAPED)
            assert (again.repairs, again.failures) == ((), ())
        check_response_format(arguments, {"type": "json_object"})


def broken(value: Any) -> dict[str, str]:
    """`value` as text, broken in ways that have one reading each."""
    text = json.dumps(value, ensure_ascii=False)
    return {
        "double": json.dumps(text),
        "fence": f"```json\n{text}\n```",
        "leading": f"Arguments: {text}",
        "trailing": f"{text}<|im_end|>",
        "closer": f"{text}" + "}",
        "again": f"{text}\n{text}",
        "python": repr(value),
        "list": f"[{text}]",
        "comma": f"{text[:-1]},}}" if value else text,
        "newline": text.replace("\\n", "\n"),
    }


@given(OBJECTS, st.sampled_from(sorted(broken({}))))
def test_what_was_broken_in_one_way_comes_back(value: Any, way: str) -> None:
    assume("<" not in str(value))
    text = broken(value)[way]
    checked = check_call("f", text, FREE)
    if not checked.failures:
        assert json.loads(checked.arguments) == value
    elif way == "newline":
        pass  # a backslash that is doubled before an n is no escaped newline
    else:
        raise AssertionError(checked.failures)


@given(OBJECTS, st.data())
def test_a_text_that_breaks_off_is_never_completed_with_another_value(
    value: Any, data: st.DataObject
) -> None:
    """What is delivered of a cut text holds whole members of the original only."""
    assume("<" not in str(value))
    text = json.dumps(value, ensure_ascii=False)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    checked = check_call("f", cut, FREE)
    if not checked.failures and cut.strip():
        assert is_part(json.loads(checked.arguments), value)


def is_part(part: Any, whole: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and is_part(item, whole[key]) for key, item in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(is_part, part, whole))
    return bool(part == whole) and type(part) is type(whole)


@pytest.mark.parametrize("name", sorted(FLOODS))
def test_floods_end(name: str) -> None:
    text = FLOODS[name]
    # A quadratic rule takes minutes for these.
    for part in (text, text[:200_000]):
        assert len(check_call("edit_file", part, SHAPED).failures) <= 1


CLOSED = one(
    {
        "type": "object",
        "properties": {
            **{f"option_number_{at}": {"type": "string"} for at in range(40)},
            "many": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "object"}]}},
        },
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize(
    "flood",
    [
        json.dumps({f"opt{number}": "v" for number in range(15_000)}),
        json.dumps({"option_" * 30_000: 1}),
        json.dumps({"many": [None] * 40_000}),
        json.dumps({"many": [{"a": "5"}] * 20_000, "x": 1}),
    ],
)
def test_floods_for_a_schema_that_is_broken(flood: str) -> None:
    checked = check_call("f", flood, CLOSED)
    assert len(checked.failures) <= 1


def test_a_key_that_has_no_utf8_is_told() -> None:
    error = check_call("f", '{"\\ud800": 1, "\\ud800": 2}', FREE).failures[0].error
    assert "twice" in error.encode().decode()


def test_floods_in_names() -> None:
    for name in (
        "f<arg_key>" + " " * 500_000,
        "f<arg_key>" + "a " * 250_000,
        "x" * 10_000_000,
        "f" + "<arg_key>" * 200_000,
        "edit_file" + "(" * 1_000_000,
    ):
        assert check_call(name, "", SHAPED).failures[0].kind == "unknown_tool"
        assert len(check_call(name, "", SHAPED).failures[0].error) < 500
