"""The work of checking and explaining is counted in steps, and bounded, before it is done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_stack_proxy.tool_validation.check import check_call, check_response_format
from mlx_stack_proxy.tool_validation.explain import UNEXPLAINED
from mlx_stack_proxy.tool_validation.schemas import CompiledSchema
from mlx_stack_proxy.tool_validation.tools import tool_set
from mlx_stack_proxy.tool_validation.validation_cost import (
    MAX_PAIRS,
    MAX_VISITS,
    TooCostly,
    Visits,
)


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


def read_in_two_ways(levels: int) -> dict[str, Any]:
    """Without a circle: each level may be read in two ways, so that accepting is exponential."""

    def one(level: int) -> dict[str, Any]:
        properties = {"x": {"$ref": f"#/$defs/a{level + 1}"}}
        return {"type": "object", "properties": properties, "required": ["x"]}

    definitions = {f"a{i}": {"anyOf": [one(i), one(i)]} for i in range(levels)}
    return {
        "type": "object",
        "properties": {"r": {"$ref": "#/$defs/a0"}},
        "$defs": {**definitions, f"a{levels}": {"type": "integer"}},
    }


def nested(levels: int, value: object) -> object:
    for _ in range(levels):
        value = {"x": value}
    return value


def check(schema: object, value: object) -> Any:
    tools = tool_set([{"type": "function", "function": {"name": "f", "parameters": schema}}])
    return check_call("f", json.dumps(value), tools)


def test_a_recursive_union_ends() -> None:
    taken = check(union(), {"expr": tree(40)})
    assert taken.unchecked
    assert not taken.failures
    assert json.loads(taken.arguments) == {"expr": tree(40)}
    taken = check(read_in_two_ways(40), {"r": nested(40, "bad")})
    assert taken.unchecked


def test_a_reply_under_a_recursive_union_ends() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": union()}}
    text = json.dumps({"expr": tree(40)})
    assert check_response_format(text, wanted).unchecked
    assert check_response_format("```json\n" + text + "\n```", wanted).failures == ()


def test_broken_arguments_that_read_as_such_a_value_end() -> None:
    text = json.dumps({"expr": tree(40)})[:-1] + ",}"
    tools = tool_set([{"type": "function", "function": {"name": "f", "parameters": union()}}])
    assert not check_call("f", text, tools).failures


@pytest.mark.parametrize("depth", [6, 9])
def test_explaining_is_bounded(depth: int) -> None:
    """What is checked and wrong is refused, also where its errors would fill the memory."""
    refused = check(union(), {"expr": tree(depth)})
    assert [failure.kind for failure in refused.failures] == ["schema"]
    assert "some deeper part" in refused.failures[0].error


def test_a_large_value_is_not_copied_into_the_error_of_each_branch() -> None:
    branches = {"anyOf": [{"type": "array", "minItems": i} for i in range(300)]}
    compiled = CompiledSchema({"properties": {"r": branches}})
    large = {"r": {"items": ["text"] * 20_000}}
    assert not compiled.accepts(large)
    assert compiled.errors(large, 1) == [UNEXPLAINED]


def test_what_is_not_deep_is_checked_and_explained_in_full() -> None:
    for depth in range(4):
        assert check(union(), {"expr": tree(depth, 1)}).failures == ()
        refused = check(union(), {"expr": tree(depth)})
        assert not refused.unchecked
        assert "none of the allowed forms" in refused.failures[0].error
        assert '"expr"' in refused.failures[0].error


def test_visits_are_those_of_a_walk_without_a_memory() -> None:
    schema, value = CompiledSchema(union(3)), {"expr": tree(5)}

    def walk(sub: Any, part: Any) -> int:
        if "$ref" in sub:
            return 1 + walk(schema.definitions[sub["$ref"].rsplit("/", 1)[-1]], part)
        total = 1 + sum(walk(one, part) for one in sub.get("anyOf", ()))
        if isinstance(part, dict):
            properties = sub.get("properties", {})
            total += sum(walk(properties[key], part[key]) for key in part if key in properties)
        return total

    assert Visits(schema.definitions).count(schema.schema, value) == walk(schema.schema, value)


def test_counting_is_linear() -> None:
    compiled = CompiledSchema(read_in_two_ways(40))
    visits = Visits(compiled.definitions)
    assert visits.count(compiled.schema, {"r": nested(40, 1)}) > MAX_VISITS
    assert len(visits._known) < 500


def test_counting_itself_ends() -> None:
    schema = {
        "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}},
        "properties": {"r": {"$ref": "#/$defs/a"}},
    }
    compiled = CompiledSchema(schema)
    with pytest.raises(TooCostly):
        Visits(compiled.definitions).count(compiled.schema, {"r": [[i] for i in range(MAX_PAIRS)]})


def test_small_schemas_without_references_are_never_walked() -> None:
    plain = {"properties": {"rows": {"items": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}}
    compiled = CompiledSchema(plain)
    assert compiled.is_checkable({"rows": [1] * (2 * MAX_PAIRS)})


def test_a_schema_that_fans_out_at_one_place_is_neither_checked_nor_mended_by() -> None:
    levels = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 100} for i in range(9)}
    properties = {"a": {"$ref": "#/$defs/d0"}}
    fanned = {"properties": properties, "required": ["a"], "$defs": {**levels, "d9": {}}}
    assert check(fanned, {"A": 1}).arguments == '{"A": 1}'
    assert CompiledSchema(fanned).schema == {}
