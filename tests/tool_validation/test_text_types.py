"""Values written without types, typed by the schema."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import pytest

from mlx_stack_proxy.tool_validation.formats.tagged import typed, types_of
from mlx_stack_proxy.tool_validation.schemas import compile_schema


def types(schema: Any, **definitions: Any) -> Set[str]:
    compiled = compile_schema({"properties": {"x": schema}, "$defs": definitions})
    return types_of(compiled.schema.get("properties", {}).get("x"))


@pytest.mark.parametrize(
    ("raw", "schema", "value"),
    [
        ("5", {"type": "string"}, "5"),
        ('{"a": 1}', {"type": "string"}, '{"a": 1}'),
        ("  a ", {"type": "string"}, "  a "),
        ("5", {"type": "integer"}, 5),
        ("5.0", {"type": "integer"}, 5),
        ("5.5", {"type": "integer"}, "5.5"),
        ("five", {"type": "integer"}, "five"),
        ("-2.5e3", {"type": "number"}, -2500.0),
        ("007", {"type": "integer"}, "007"),
        ("True", {"type": "boolean"}, True),
        ("yes", {"type": "boolean"}, "yes"),
        ("null", {"type": ["integer", "null"]}, None),
        ("None", {"type": ["integer", "null"]}, None),
        ("none", {"type": "string", "enum": ["none", "some"]}, "none"),
        ("42", {"type": ["string", "null"]}, "42"),
        ("null", {"type": ["string", "null"]}, None),
        ('"hello"', {"type": ["string", "null"]}, '"hello"'),
        ("42", {"type": ["string", "integer"]}, 42),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ("['a', 'b']", {"type": "array"}, ["a", "b"]),
        ("{'a': True}", {"type": "object"}, {"a": True}),
        ("[1]", {"type": "object"}, "[1]"),
        ('["a"]', {"anyOf": [{"type": "array"}, {"type": "null"}]}, ["a"]),
        ("2", {"enum": [1, 2, 3]}, 2),
        ("2", {"enum": ["1", "2"]}, "2"),
        ("2", {"$ref": "#/$defs/count"}, 2),
        ("2", {"$ref": "#/$defs/name"}, "2"),
        ("2", {}, 2),
        ("a b", {}, "a b"),
        ("2", {"type": "any"}, 2),
        ("2", {"properties": {}}, "2"),
    ],
)
def test_by_schema(raw: str, schema: Any, value: Any) -> None:
    found = typed(raw, types(schema, count={"type": "integer"}, name={"type": "string"}))
    assert found == value
    assert type(found) is type(value)


def test_a_reference_to_itself_ends() -> None:
    circles = {"a": {"$ref": "#/$defs/a"}, "b": {"anyOf": [{"$ref": "#/$defs/b"}] * 2}}
    for reference in ("#/$defs/a", "#/$defs/b", "https://example.org/schema"):
        assert types({"$ref": reference}, **circles) == set()
