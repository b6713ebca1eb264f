"""Schemas as clients really send them: odd ones fail no good call, and large ones cost little."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_stack_proxy.tool_validation import schemas
from mlx_stack_proxy.tool_validation.check import check_response_format
from mlx_stack_proxy.tool_validation.clean_schema import (
    MAX_DEPTH,
    MAX_NODES,
    PATTERN_BYTES,
    Patterns,
    clean,
)
from mlx_stack_proxy.tool_validation.explain import UNEXPLAINED
from mlx_stack_proxy.tool_validation.schemas import MAX_WORK, SMALL, CompiledSchema, compile_schema
from tests.tool_validation.calls import check, kinds, one, parameters, tool, tool_set

D4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
D7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
LONG = {f"d{i}": {"properties": {"x": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(2_000)}
LAUGHS = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}


def props(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


# schema, a good call
ODD: list[tuple[Any, Any]] = [
    (None, {"a": 1}),
    (True, {"a": 1}),
    (5, {"a": 1}),
    ("object", {"a": 1}),
    ({"type": "string"}, {"a": 1}),
    (props(a={"type": ["string", "null"]}), {"a": None}),
    (props(a={"type": "any"}), {"a": 1}),
    ({"type": "dict", "properties": {"a": {"type": "float"}}}, {"a": 1.5}),
    (props(a={"type": "tuple", "items": {"type": "float"}}), {"a": [1, 2.5]}),
    ({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}, {"a": "x"}),
    (props(a={"type": "string", "nullable": True, "enum": ["x"]}), {"a": None}),
    (props(a={"type": 5}), {"a": 1}),
    (props(a=None), {"a": 1}),
    (props(a={"items": True}), {"a": [1]}),
    (props(a={"items": [{"type": "integer"}, {"type": "string"}]}), {"a": [1, "x", None]}),
    (props(a={"items": [{"type": "odd"}, {"type": "string"}]}), {"a": [1, "x", None]}),
    (props(a={"enum": []}), {}),
    (props(a={"type": "integer", "enum": ["1", "2"]}), {"a": "1"}),
    (props(a={"type": "integer", "enum": ["1", "2"]}), {"a": 1}),
    (props(a={"type": "integer", "minimum": "1"}), {"a": 0}),
    (props(a={"minimum": 3, "exclusiveMinimum": False}), {"a": 3}),
    (props(a={"minLength": -1}), {"a": ""}),
    (props(a={"pattern": "(?=x)"}), {"a": "y"}),
    (props(a={"pattern": "("}), {"a": "y"}),
    (props(a={"type": "string", "required": True}), {}),
    ({"properties": {"a": {}}, "required": "a"}, {}),
    ({"properties": {"a": {}}, "required": ["a", 5]}, {"a": 1}),
    ({"properties": [1], "additionalProperties": False}, {"a": 1}),
    ({"patternProperties": {"(?=a)": {}}, "additionalProperties": False}, {"a": 1}),
    ({"properties": {"a": {"$ref": "#/nowhere"}}}, {"a": 1}),
    ({"properties": {"a": {"$ref": "http://127.0.0.1:9/x.json"}}}, {"a": 1}),
    ({"properties": {"a": {"$ref": 5}}}, {"a": 1}),
    ({"$ref": "#"}, {"a": 1}),
    ({"$defs": {**LAUGHS, "d40": {}}, "$ref": "#/$defs/d0"}, {"a": 1}),
    ({"$defs": {**LONG, "d2000": {}}, "$ref": "#/$defs/d0"}, {"a": 1}),
    ({"$dynamicRef": "#x"}, {"a": 1}),
    ({"oneOf": [props(a={"type": "odd"}), props(a={})]}, {"a": 1}),
    ({"oneOf": [props(a={"type": "odd"})], "anyOf": [{}]}, {"a": 1}),
    ({"not": {"required": ["a"], "properties": {"a": {"type": "odd"}}}}, {"a": 1}),
    ({"if": props(a={"type": "odd"}), "then": {"required": ["b"]}}, {"a": 1}),
    ({**D4, **props(a={"minimum": 3, "exclusiveMinimum": True})}, {"a": 4}),
    ({"$schema": "http://example.com/own", **props(a={"type": "string"})}, {"a": "x"}),
    (props(model_config={"type": "string"}), {"model_config": "x"}),
    (props(**{"$ref": {"type": "string"}, "type": {"type": "string"}}), {"$ref": "x"}),
    (props(properties={"type": "object"}, required={"type": "array"}), {"required": []}),
    (props(a={"type": "string", "format": "email"}), {"a": "no address"}),
    (props(a={"x-order": 1, "title": 5, "examples": "x", "deprecated": "no"}), {"a": 1}),
]


@pytest.mark.parametrize(("schema", "good"), ODD)
def test_odd_schemas_let_good_calls_pass(schema: Any, good: Any) -> None:
    tools = one(schema)
    text = json.dumps(good)
    checked = check(text, tools)
    assert (checked.arguments, checked.repairs, checked.failures) == (text, (), ())


@pytest.mark.parametrize(
    ("schema", "bad", "kind"),
    [
        (props(a={"type": ["string", "null"]}), {"a": 5.5}, "wrong_type"),
        ({"type": "dict", "properties": {"a": {"type": "float"}}}, {"a": "x"}, "wrong_type"),
        ({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}, {"a": []}, "wrong_type"),
        (
            {**D7, "definitions": {"x": {"type": "integer"}},
             **props(a={"$ref": "#/definitions/x"})},
            {"a": []},
            "wrong_type",
        ),
        (
            {"components": {"x/y": {"type": "integer"}}, **props(a={"$ref": "#/components/x~1y"})},
            {"a": []},
            "wrong_type",
        ),
        (
            {"$id": "http://a/b", "$defs": {"x": {"type": "integer"}},
             **props(a={"$ref": "http://a/b#/$defs/x"})},
            {"a": []},
            "wrong_type",
        ),
        ({"not": {"required": ["a"]}}, {"a": 1}, "schema"),
        (props(a={"enum": []}), {"a": 1}, "not_in_enum"),
        (props(a={"items": [{"type": "odd"}, {"type": "string"}]}), {"a": [1, {}]}, "wrong_type"),
        (props(a={"items": [{}], "additionalItems": False}), {"a": [1, 2]}, "schema"),
        (props(a={"items": [], "additionalItems": {"maximum": 1}}), {"a": [5]}, "schema"),
        ({**props(a={}), "dependencies": {"a": ["b"]}}, {"a": 1}, "missing_required"),
        ({**props(a={}), "dependencies": {"a": {"maxProperties": 0}}}, {"a": 1}, "schema"),
        # what can be checked of an odd schema is
        (parameters("b", a={"type": "any"}, b="string"), {"a": 1}, "missing_required"),
        (props(a={"type": "odd"}, b={"type": "string"}), {"b": []}, "wrong_type"),
    ],
)  # fmt: skip
def test_what_can_be_checked_is(schema: Any, bad: Any, kind: str) -> None:
    assert kinds(json.dumps(bad), one(schema)) == [kind]


UNIT = {"type": "string", "maxLength": 2}
# a schema of `{"size": …}`, in which "kg" is valid and "kilo" is not
REFERRING: list[dict[str, Any]] = [
    {"$defs": {"u": {"$id": "https://units.example/u", **UNIT}},
     **props(size={"$ref": "https://units.example/u"})},
    {"$id": "https://units.example/a/tool", "$defs": {"u": {"$id": "../b/u", **UNIT}},
     **props(size={"$ref": "/b/u"})},
    {"$id": "urn:units:1", "$defs": {"u": UNIT}, **props(size={"$ref": "urn:units:1#/$defs/u"})},
    {"$defs": {"u": {"$anchor": "unit", **UNIT}}, **props(size={"$ref": "#unit"})},
    {"definitions": {"u": {"$id": "#unit", **UNIT}}, **props(size={"$ref": "#unit"})},
    {"$defs": {"u": {"$dynamicAnchor": "unit", **UNIT}}, **props(size={"$dynamicRef": "#unit"})},
    {"$defs": {"lib": {"$id": "lib", "$defs": {"u": UNIT, "v": {"$ref": "#/$defs/u"}}}},
     **props(size={"$ref": "lib#/$defs/v"})},
    {"if": {"properties": {"size": UNIT}}, **props(size={"$ref": "#/if/properties/size"})},
    {"allOf": [{"then": {"$id": "then", **UNIT}}, {"else": {"$anchor": "u", **UNIT}}],
     **props(size={"allOf": [{"$ref": "then"}, {"$ref": "#u"}]})},
    # an outer resource takes the place of a dynamic anchor
    {"$id": "https://units.example/short", "$ref": "long",
     "$defs": {"u": {"$dynamicAnchor": "unit", **UNIT},
               "long": {"$id": "long", "$defs": {"u": {"$dynamicAnchor": "unit"}},
                        **props(size={"$dynamicRef": "#unit"})}}},
    # a pointer that its resource does not hold is read from the root
    {"$defs": {"u": UNIT}, **props(size={"$id": "/properties/size", "$ref": "#/$defs/u"})},
]  # fmt: skip


@pytest.mark.parametrize("schema", REFERRING)
def test_references_inside_a_schema(schema: dict[str, Any]) -> None:
    assert kinds('{"size": "kg"}', one(schema)) == []
    assert kinds('{"size": "kilo"}', one(schema)) != []


@pytest.mark.parametrize("head", [D7, {}])
def test_nothing_next_to_a_reference_counts_up_to_draft_7(head: dict[str, Any]) -> None:
    size = {"$ref": "#/definitions/u", "minLength": 9, "$id": "https://units.example/"}
    schema = {**head, "definitions": {"u": UNIT}, **props(size=size)}
    assert kinds('{"size": "kg"}', one(schema)) == []
    assert kinds('{"size": "kilo"}', one(schema)) != []


def test_a_uri_that_is_too_long_names_nothing() -> None:
    long = "x" * 5_000
    schema = {"$defs": {"u": {"$id": long, **UNIT}}, **props(size={"$ref": long})}
    assert kinds('{"size": "kilo"}', one(schema)) == []


def test_a_recursive_schema() -> None:
    tree = parameters("name", name="string", children={"type": "array", "items": {"$ref": "#"}})
    tools = one(tree)
    good = {"name": "a", "children": [{"name": "b", "children": []}]}
    assert kinds(json.dumps(good), tools) == []
    assert kinds('{"name": "a", "children": [{"children": []}]}', tools) == ["missing_required"]


def test_a_pattern_cannot_hang() -> None:
    tools = one(props(a={"type": "string", "pattern": "^(a+)+$"}))
    assert kinds(json.dumps({"a": "a" * 5_000 + "b"}), tools) == ["schema"]


def test_patterns_that_cost_too_much_are_not_compiled() -> None:
    assert not Patterns().take("(a{1000}){1000}")
    assert not Patterns().take("a" * 5_000)
    assert Patterns().take(r"^[\w.-]+/\d{1,3}$")


def test_all_patterns_of_a_schema_share_one_budget() -> None:
    costly = {f"p{i}": {"type": "string", "pattern": rf"\p{{L}}{{20}}{i}"} for i in range(300)}
    compiled = compile_schema(props(plain={"type": "integer"}, **costly))
    kept = [name for name, sub in compiled.properties.items() if "pattern" in sub]
    assert kept == ["p0", "p1"], "each takes 1 MB"
    assert (compiled.accepts({"p299": "9"}), compiled.accepts({"p0": "9"})) == (True, False)
    assert not compiled.accepts({"plain": "x"}), "all else is checked"
    checked = check('{"p299": "9"}', one(props(**costly)))
    assert (checked.unchecked, checked.failures) == (True, ()), "and it is counted"


def test_patterns_that_the_engine_does_not_know_take_nothing_of_the_budget() -> None:
    patterns = Patterns()
    assert not any(patterns.take(rf"(?={i})") for i in range(100))
    assert (patterns.left, patterns.skipped) == (PATTERN_BYTES, False)


def test_usual_patterns_fit_the_budget_by_the_hundred() -> None:
    patterns = Patterns()
    usual = r"^[\w.%+-]+@[a-z0-9.-]+\.[a-z]{2,}$"
    assert all(patterns.take(usual.replace("@", str(i))) for i in range(400))


def test_a_schema_that_is_nested_without_end() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(3_000):
        schema = {"properties": {"a": schema}}
    assert str(clean(schema)).count("properties") == MAX_DEPTH + 1
    assert CompiledSchema(schema).accepts({"a": {"a": {}}})


def test_what_the_validator_dislikes_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "clean", lambda *_, **__: {"type": 5})
    compiled = CompiledSchema(props(a={"type": "string"}))
    assert compiled.accepts({"a": 5})
    assert compiled.errors({"a": 5}, 5) == []


def test_values_that_have_no_utf8() -> None:
    tools = one(parameters("a", a={"type": "string", "maxLength": 3}))
    assert kinds('{"a": "\\ud800"}', tools) == []
    assert kinds('{"a": "\\ud800xxx"}', tools) == ["schema"]


def test_tools_that_no_json_can_hold() -> None:
    schema = props(a={"type": "integer", "maximum": 10**30})
    assert kinds('{"a": 5}', one(schema)) == []
    tools = tool_set([tool("f", {"properties": {1: {}}}), tool("g", {"x": {1, 2}})])
    assert kinds("{}", tools, "f") == []
    assert kinds("{}", tools, "g") == []


def test_the_cache_is_bounded_by_the_bytes_it_holds() -> None:
    schemas._cache.clear()
    for number in range(60):
        costly = {f"a{i}": {"pattern": rf"\p{{L}}{{20}}{i}"} for i in range(2)}
        compile_schema(props(**costly, **{f"b{number}": {}}))
    compiled = schemas._cache.values()
    assert 10 < len(compiled) < 20, "each holds 2 MB"
    assert sum(one.bytes for one in compiled) == schemas._cache.bytes <= schemas.CACHE_BYTES
    compile_schema(props(a={"description": "x" * (schemas.MAX_SCHEMA - 100)}))
    assert schemas._cache.bytes <= schemas.CACHE_BYTES
    schemas._cache.clear()


@pytest.mark.parametrize(
    "schema",
    [
        props(a={"description": "x" * 100_000}),
        props(a={"maximum": 10**30}),
        props(a={"default": "\ud800"}),
    ],
    ids=["large", "beyond 64 bits", "a lone surrogate"],
)
def test_no_schema_is_compiled_anew(schema: dict[str, Any]) -> None:
    assert compile_schema(schema) is compile_schema(schema)


def test_what_takes_long_to_compile_is_known_before() -> None:
    schemas._cache.clear()
    assert schemas.is_quick(props(a={"type": "string"}))
    slow = props(a={"description": "x" * 10_000})
    for schema in (slow, props(a={"pattern": "a"}), props(a={"$ref": "#"})):
        assert not schemas.is_quick(schema)
        compile_schema(schema)
        assert schemas.is_quick(schema), "it is compiled by now"


def test_a_schema_that_is_too_large_is_not_compiled() -> None:
    large = props(**{f"a{i}": {"type": "integer"} for i in range(4_900)})
    for schema in (large, props(a={"type": "integer", "description": "x" * schemas.MAX_SCHEMA})):
        assert schemas.is_quick(schema) is (schema is not large)
        checked = check('{"a": "x", "a0": "x"}', one(schema))
        assert (checked.unchecked, checked.failures) == (True, ())


def test_a_cached_schema_does_not_change_with_the_request() -> None:
    schema = props(a={"type": "string"})
    compiled = compile_schema(schema)
    schema["properties"]["a"]["type"] = "integer"
    assert compiled.raw == props(a={"type": "string"})
    assert compile_schema(schema) is not compiled


# What a large schema costs


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


@pytest.mark.parametrize("schema", [union(), union(9), IN_TWO_WAYS, FANNED])
def test_a_schema_becomes_a_tree_of_bounded_size(schema: dict[str, Any]) -> None:
    compiled = CompiledSchema(schema)
    assert "$ref" not in json.dumps(compiled.schema)
    assert json.dumps(compiled.schema).count("{") <= 3 * MAX_NODES


def test_a_recursive_schema_checks_the_outer_levels() -> None:
    tools = one(union())
    for depth in range(3):
        assert kinds(json.dumps({"expr": tree(depth, 1)}), tools) == []
        refused = check(json.dumps({"expr": tree(depth)}), tools)
        assert "none of the allowed forms" in refused.failures[0].error
        assert '"expr"' in refused.failures[0].error
    for value in ({"expr": tree(40)}, {"expr": tree(40, 1)}):
        taken = check(json.dumps(value), tools)
        assert json.loads(taken.arguments) == value
        assert not taken.failures


def test_a_reply_under_a_recursive_union_ends() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": union()}}
    text = json.dumps({"expr": tree(40)})
    assert check_response_format("```json\n" + text + "\n```", wanted).failures == ()


def test_what_costs_too_much_is_taken_as_it_is() -> None:
    taken = check(json.dumps(TOO_LARGE), one(LARGE))
    assert (taken.unchecked, taken.failures) == (True, ())
    assert kinds('{"field_0": "x"}', one(LARGE)) == ["wrong_type"]
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": LARGE}}
    assert check_response_format(json.dumps(TOO_LARGE), wanted).unchecked


def test_a_large_value_is_not_copied_into_the_error_of_each_branch() -> None:
    branches = {"anyOf": [{"type": "array", "minItems": i} for i in range(300)]}
    compiled = CompiledSchema({"properties": {"r": branches}})
    large = {"r": {"items": ["text"] * 20_000}}
    assert not compiled.accepts(large)
    assert compiled.errors(large, 1) == [UNEXPLAINED]
    tools = one({"properties": {"r": branches}, "required": ["q"]})
    refused = check(json.dumps(large), tools)
    assert "some deeper part" in refused.failures[0].error
