"""Right tool calls of any kind: untouched. What is broken: tests/tool_validation/test_*fuzz.py."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.fuzz.mutations import JSON, few, shape_of, written
from mlx_stack_proxy.tool_validation.check import check_call
from tests.tool_validation.calls import one
from tests.tool_validation.test_check_fuzz import KEYS


@few
@given(st.dictionaries(KEYS, JSON, max_size=4), st.integers(0, 3))
def test_a_valid_call_is_never_touched(value: Any, style: int) -> None:
    assume("<" not in str(value) and "|" not in str(value))  # which may be leaked markup
    text = written(value, style)
    found = check_call("f", text, one(shape_of(value)))
    assert (found.name, found.arguments, found.repairs, found.failures) == ("f", text, (), ())
