"""Checking and explaining end soon: a reference becomes a finite tree, and work has a limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_stack_proxy.tool_validation.check import check_call, check_response_format
from mlx_stack_proxy.tool_validation.clean_schema import MAX_NODES
from mlx_stack_proxy.tool_validation.explain import UNEXPLAINED
from mlx_stack_proxy.tool_validation.schemas import MAX_WORK, SMALL, CompiledSchema
from mlx_stack_proxy.tool_validation.tools import tool_set


def union(kinds: int = 4) -> dict[str, Any]:
    """An expression is one of several kinds of node that look alike, or a leaf."""
    child = {"$ref": "#/$defs/E"}
    node = {
        "type": "object",
        "properties": {"left": child, "right": child},
        "required": ["left", "right"],
    }
    leaf = {"type": "object", "properties": {"value": {"type": "number"}}, "required": ["value"]}
    names = [{"$ref": f"#/$defs/N{i}"} for i in range(kinds)]
    nodes = {f"N{i}": node for i in range(kinds - 1)}
    return {
        "type": "object",
        "properties": {"expr": child},
        "required": ["expr"],
        "$defs": {"E": {"anyOf": names}, **nodes, f"N{kinds - 1}": leaf},
    }


def tree(depth: int, leaf: object = "x") -> dict[str, Any]:
    """A tree with one long branch, at whose end stands `leaf`."""
    value: dict[str, Any] = {"value": leaf}
    for _ in range(depth):
        value = {"left": value, "right": {"value": 2}}
    return value


# Without a circle: each level may be read in two ways, so the ways to the last are 2 ** 40.
LEVELS = {
    f"a{level}": {"anyOf": [{"properties": {"x": {"$ref": f"#/$defs/a{level + 1}"}}}] * 2}
    for level in range(40)
}
IN_TWO_WAYS = {
    "properties": {"r": {"$ref": "#/$defs/a0"}},
    "$defs": {**LEVELS, "a40": {"type": "integer"}},
}
MANY = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 100} for i in range(9)}
FANNED = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**MANY, "d9": {}}}
# A large schema, and a value that is too large for it.
LARGE = {"properties": {f"field_{i}": {"type": "integer"} for i in range(SMALL // 20)}}
TOO_LARGE = {"field_0": "x", "text": " ".join(map(str, range(MAX_WORK // SMALL // 5)))}


def check(schema: object, value: object) -> Any:
    tools = tool_set([{"type": "function", "function": {"name": "f", "parameters": schema}}])
    return check_call("f", json.dumps(value), tools)


@pytest.mark.parametrize("schema", [union(), union(9), IN_TWO_WAYS, FANNED])
def test_a_schema_becomes_a_tree_of_bounded_size(schema: dict[str, Any]) -> None:
    compiled = CompiledSchema(schema)
    assert "$ref" not in json.dumps(compiled.schema)
    assert json.dumps(compiled.schema).count("{") <= 3 * MAX_NODES


def test_a_recursive_schema_checks_the_outer_levels() -> None:
    for depth in range(3):
        assert check(union(), {"expr": tree(depth, 1)}).failures == ()
        refused = check(union(), {"expr": tree(depth)})
        assert "none of the allowed forms" in refused.failures[0].error
        assert '"expr"' in refused.failures[0].error
    for value in ({"expr": tree(40)}, {"expr": tree(40, 1)}):
        taken = check(union(), value)
        assert json.loads(taken.arguments) == value
        assert not taken.failures


def test_a_reply_under_a_recursive_union_ends() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": union()}}
    text = json.dumps({"expr": tree(40)})
    assert check_response_format("```json\n" + text + "\n```", wanted).failures == ()


def test_what_costs_too_much_is_taken_as_it_is() -> None:
    taken = check(LARGE, TOO_LARGE)
    assert (taken.unchecked, taken.failures) == (True, ())
    assert [one.kind for one in check(LARGE, {"field_0": "x"}).failures] == ["wrong_type"]
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": LARGE}}
    assert check_response_format(json.dumps(TOO_LARGE), wanted).unchecked


def test_a_large_value_is_not_copied_into_the_error_of_each_branch() -> None:
    branches = {"anyOf": [{"type": "array", "minItems": i} for i in range(300)]}
    compiled = CompiledSchema({"properties": {"r": branches}})
    large = {"r": {"items": ["text"] * 20_000}}
    assert not compiled.accepts(large)
    assert compiled.errors(large, 1) == [UNEXPLAINED]
    refused = check({"properties": {"r": branches}, "required": ["q"]}, large)
    assert "some deeper part" in refused.failures[0].error
