"""Tool calls, right and broken: no exception, a good one untouched, nothing lost or made up."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.fuzz.mutations import JSON, TEXTS, cuts, damaged, few, shape_of, written
from mlx_stack_proxy.tool_validation.check import check_call, check_response_format
from mlx_stack_proxy.tool_validation.text_calls import Holdback, rescue
from mlx_stack_proxy.tool_validation.tools import tool_set
from tests.tool_validation.calls import one, tool
from tests.tool_validation.test_check_fuzz import SHAPED, broken, is_part
from tests.tool_validation.test_schema_agreement import SCHEMAS
from tests.tool_validation.test_text_samples import SAMPLES, TOOLS
from tests.tool_validation.test_tool_validation_fuzz import ODD

KEYS = st.text("abcdef_", min_size=1, max_size=6)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)
SCRAPS = [
    "{", "}", "[", "]", '"', "'", "\\", ":", ",", "```", "```json\n", "null", "None", "True", "NaN",
    "1e999", "-", ".", "\n", "\t", " ", "//", "/*", "*/", "#", "\\u", "\\ud83d", "\ud83d", "\x00",
    "<", ">", "</", "<tool_call>", "</tool_call>", "<|im_end|>", "<arg_key>", "</think>", "=", "(",
    ")", "arguments", "parameters", '"name": ', "find_book", "“", "”", "，",
]  # fmt: skip
NAMES = st.sampled_from(["edit_file", "search", "f", "Search", "functions.f", "", "<f>", "\ud83d"])
TEXT_CALLS = [text for texts in SAMPLES.values() for text in texts]


def fits(value: Any) -> bool:
    """Whether no rule about leaked markup has a reason to look at it."""
    return "<" not in str(value) and "|" not in str(value)


@few
@given(
    NAMES,
    damaged(st.builds(written, OBJECTS, st.integers(0, 3)), SCRAPS),
    st.builds(lambda schema: tool_set([tool("f", schema)]), ODD | SCHEMAS) | st.just(SHAPED),
)
def test_any_call(name: str, text: str, tools: Any) -> None:
    found = check_call(name, text, tools)
    if found.failures:
        assert (found.name, found.arguments, found.repairs) == (name, text, ())
        assert all(failure.error and len(failure.error) < 2_000 for failure in found.failures)
        return
    assert found.name in tools
    assert isinstance(json.loads(found.arguments), dict)
    if not found.repairs:
        assert (found.name, found.arguments) == (name, text)
    again = check_call(found.name, found.arguments, tools)
    assert (again.arguments, again.repairs, again.failures) == (found.arguments, (), ())


@few
@given(OBJECTS, st.integers(0, 3))
def test_a_valid_call_is_never_touched(value: Any, style: int) -> None:
    assume(fits(value))
    text = written(value, style)
    tools = one(shape_of(value))
    found = check_call("f", text, tools)
    assert (found.name, found.arguments, found.repairs, found.failures) == ("f", text, (), ())


@few
@given(OBJECTS, st.sampled_from(sorted(broken({}))), st.integers(0, 3))
def test_a_repair_loses_and_makes_up_nothing(value: Any, way: str, style: int) -> None:
    assume(fits(value))
    if way == "newline":  # a backslash that is doubled before an n is no escaped newline
        assume("\\" not in str(value))
    text = broken(value)[way]
    found = check_call("f", text, one(shape_of(value)))
    if not found.failures:
        assert json.loads(found.arguments) == value
    cut_off = text[: (style + 1) * len(text) // 5]
    half = check_call("f", cut_off, one({"type": "object"}))
    if way == "comma" and not half.failures and cut_off.strip():
        assert is_part(json.loads(half.arguments), value)


@few
@given(damaged(st.builds(written, JSON, st.integers(0, 3)), SCRAPS), SCHEMAS | ODD)
def test_any_structured_reply(text: str, schema: Any) -> None:
    for wanted in (
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    ):
        found = check_response_format(text, wanted)
        if found.failures or not found.repairs:
            assert found.arguments == text


@few
@given(
    damaged(st.lists(st.sampled_from(TEXT_CALLS) | TEXTS, max_size=3).map("".join), SCRAPS),
    st.data(),
)
def test_calls_in_text(text: str, data: st.DataObject) -> None:
    found = rescue(text, TOOLS)
    assert found.calls or found.content == text
    assert all(call.name in TOOLS for call in found.calls)
    holdback = Holdback(TOOLS)
    flowed = "".join(holdback.feed(piece) for piece in in_pieces(text, data))
    rest = holdback.finish()
    assert (flowed + rest.content, rest.calls) == (found.content, found.calls)
    assert rest.unknown == found.unknown
    assert text.startswith(flowed)


def in_pieces(text: str, data: st.DataObject) -> list[str]:
    places = sorted({at for at in data.draw(cuts(len(text))) if 0 < at < len(text)})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
