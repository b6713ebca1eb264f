"""The compiled validator and the reference implementation agree on every schema that we check.

They are known to differ in regex dialects (ours is linear and knows no look-around), in formats
(neither asserts them here), and in `multipleOf` of fractions, which these tests leave out.
"""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.tool_validation.clean_schema import Patterns, clean
from mlx_stack_proxy.tool_validation.schemas import CompiledSchema

REFERENCE = jsonschema.Draft202012Validator
# Without 2019-09, in which the reference takes what `additionalProperties` judged for unevaluated.
DRAFTS = [
    jsonschema.Draft4Validator,
    jsonschema.Draft6Validator,
    jsonschema.Draft7Validator,
    REFERENCE,
]

KEYS = st.sampled_from(["a", "b", "c", "type", "$ref"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.sampled_from([0.5, 1.0, -2.0, 2**70])
    | st.text("ab1 é\u0000", max_size=4)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "object", "array", "null"])
COUNTS = st.integers(0, 3)
PATTERNS = st.sampled_from(["^a", "b$", "[ab]+", "^.{2}$", "a|1"])


def schemas_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    subs = inner | st.booleans()
    listed = st.lists(subs, min_size=1, max_size=3)
    mapped = st.dictionaries(KEYS, subs, max_size=3)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "enum": st.lists(SCALARS, min_size=1, max_size=3),
        "const": SCALARS,
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "pattern": PATTERNS,
        "minimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(0, 9),
        "multipleOf": st.integers(1, 3),
        "items": subs | listed,
        "prefixItems": listed,
        "additionalItems": subs,
        "minItems": COUNTS,
        "uniqueItems": st.booleans(),
        "contains": subs,
        "maxContains": COUNTS,
        "properties": mapped,
        "patternProperties": st.dictionaries(PATTERNS, subs, max_size=2),
        "additionalProperties": subs,
        "propertyNames": subs,
        "required": st.lists(KEYS, max_size=3),
        "minProperties": COUNTS,
        "dependentRequired": st.dictionaries(KEYS, st.lists(KEYS, max_size=2), max_size=2),
        "dependencies": st.dictionaries(KEYS, subs | st.lists(KEYS, max_size=2), max_size=2),
        "allOf": listed,
        "anyOf": listed,
        "oneOf": listed,
        "not": subs,
        "if": subs,
        "then": subs,
        "else": subs,
        "unevaluatedProperties": subs,
        "$ref": st.sampled_from(["#", "#/properties/a", "#/anyOf/0", "#/$defs/x", "#/none"]),
        "$defs": st.just({"x": {"type": "integer"}}),
        "nullable": st.booleans(),
    }
    return st.sets(st.sampled_from(sorted(keywords)), max_size=4).flatmap(
        lambda chosen: st.fixed_dictionaries({key: keywords[key] for key in sorted(chosen)})
    )


SCHEMAS = st.recursive(
    st.fixed_dictionaries({}, optional={"type": TYPES}), schemas_of, max_leaves=8
)


@given(SCHEMAS, VALUES)
def test_both_validators_agree_on_what_is_left_of_a_schema(
    schema: dict[str, Any], value: Any
) -> None:
    compiled = CompiledSchema(schema, whole_object=False)
    REFERENCE.check_schema(compiled.schema)
    if compiled.is_checkable(value):
        assert compiled.accepts(value) == REFERENCE(compiled.schema).is_valid(value)
    errors = compiled.errors(value, 3)
    assert bool(errors) != compiled.accepts(value)


def has_whole_float(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_whole_float, value.values()))
    if isinstance(value, list):
        return any(map(has_whole_float, value))
    return isinstance(value, float) and value.is_integer()


@given(SCHEMAS, st.sampled_from(DRAFTS), VALUES)
def test_cleaning_a_sound_schema_changes_nothing(
    schema: dict[str, Any], draft: Any, value: Any
) -> None:
    """What is left of a schema of any draft judges like it, in the newest one's spelling."""
    unknown = REFERENCE.VALIDATORS.keys() - draft.VALIDATORS.keys()
    schema = without(schema, unknown | {"$ref", "nullable", "dependencies", "maxContains"})
    try:
        draft.check_schema(schema)
        expected = draft(schema).is_valid(value)
    except (jsonschema.SchemaError, TypeError):  # it trips over boolean `items` in draft 6
        return
    if draft is jsonschema.Draft4Validator and has_whole_float(value):
        return  # 1.0 is an integer since draft 6; we let it pass in draft 4 too
    judged = REFERENCE(clean(schema, whole_object=False)).is_valid(value)
    assert judged or not expected
    if "enum" not in str(schema):  # left out: one that contradicts its type
        assert judged == expected


def without(schema: Any, keywords: set[str]) -> Any:
    if isinstance(schema, dict):
        return {
            key: without(value, keywords) for key, value in schema.items() if key not in keywords
        }
    return [without(item, keywords) for item in schema] if isinstance(schema, list) else schema


ODD_VALUES = st.recursive(
    SCALARS | TYPES | PATTERNS | st.just("any"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "items", "properties", "a", "$ref"]), inner)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["type", "enum", "const", "properties", "required", "items", "pattern", "minimum",
             "exclusiveMinimum", "minLength", "allOf", "oneOf", "not", "if", "then", "$ref",
             "$defs", "dependencies", "additionalProperties", "patternProperties", "maxContains",
             "contains", "unevaluatedItems", "nullable", "prefixItems", "$schema", "multipleOf"]
        ),
        ODD_VALUES,
        max_size=5,
    ),
    VALUES,
)  # fmt: skip
def test_any_schema_compiles(schema: dict[str, Any], value: Any) -> None:
    compiled = CompiledSchema(schema)
    REFERENCE.check_schema(compiled.schema)
    compiled.accepts({"a": value})
    compiled.errors({"a": value}, 3)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\d", "٣", False),  # digits are ASCII's, as in ECMA 262
        ("a$", "a\n", False),  # the end is the end
        (r"^\w+$", "é", False),
        ("^.$", "😀", True),
    ],
)
def test_where_our_patterns_follow_ecma_262(pattern: str, text: str, matches: bool) -> None:
    assert Patterns().take(pattern)
    assert CompiledSchema({"pattern": pattern}, whole_object=False).accepts(text) is matches
