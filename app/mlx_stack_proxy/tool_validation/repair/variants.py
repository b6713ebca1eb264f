"""Expand a schema at one place into its alternatives, without combinators.

Only repairs use the alternatives. They are approximate where schemas combine, but a repaired value
is validated against the real schema afterwards.
"""

from __future__ import annotations

from typing import Any, Final

MAX_VARIANTS: Final = 16  # the alternatives kept
_KINDS: Final[dict[type, tuple[str, ...]]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    type(None): ("null",),
    list: ("array",),
    dict: ("object",),
}

Schema = dict[str, Any]


def variants(schema: object) -> list[Schema]:
    """Return up to ``MAX_VARIANTS`` alternatives of a cleaned schema, each without combinators."""
    if not isinstance(schema, dict):
        return [] if schema is False else [{}]
    alternatives = [{key: schema[key] for key in schema if key not in ("allOf", "anyOf", "oneOf")}]
    groups: list[list[object]] = [[part] for part in schema.get("allOf", ())]
    groups += [schema[key][:MAX_VARIANTS] for key in ("anyOf", "oneOf") if key in schema]
    for branches in groups:
        forms = [variant for branch in branches for variant in variants(branch)]
        merged = [_merged(first, second) for first in alternatives for second in forms]
        alternatives = merged[:MAX_VARIANTS]
    return alternatives


def _merged(first: Schema, second: Schema) -> Schema:
    merged = {**first, **second}
    for key in ("properties", "patternProperties"):
        if key in first and key in second:
            merged[key] = {**first[key], **second[key]}
    if "required" in first and "required" in second:
        merged["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return merged


def kinds(variant: Schema) -> frozenset[str] | None:
    """Return the JSON types that ``variant`` allows; None if it says nothing about types."""
    if declared := variant.get("type"):
        return frozenset([declared] if isinstance(declared, str) else declared)
    if values := [variant["const"]] if "const" in variant else variant.get("enum"):
        return frozenset(kind for value in values for kind in _kinds_of(value))
    return frozenset({"object"}) if "properties" in variant else None


def fits(value: object, variant: Schema) -> bool:
    """Whether ``value`` is of a type that ``variant`` allows."""
    allowed = kinds(variant)
    return allowed is None or not allowed.isdisjoint(_kinds_of(value))


def is_of_type(value: object, kind: str) -> bool:
    """Whether ``value`` is of JSON Schema's type ``kind``; 5.0 is an integer, true is not."""
    return kind in _kinds_of(value)


def _kinds_of(value: object) -> tuple[str, ...]:
    """Return the types of JSON Schema that a JSON value has."""
    if isinstance(value, float) and value.is_integer():
        return _KINDS[int]
    return _KINDS.get(type(value), ())
