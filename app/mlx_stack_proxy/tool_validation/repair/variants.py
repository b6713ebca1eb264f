"""Expand a schema at one place into its alternatives, without combinators.

Only repairs use the alternatives. They are approximate where schemas combine, but a repaired value
is validated against the real schema afterwards.
"""

from __future__ import annotations

from typing import Any, Final

MAX_VARIANTS: Final = 16  # the alternatives kept

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
    declared = variant.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if declared:
        return frozenset(declared)
    values = [variant["const"]] if "const" in variant else variant.get("enum")
    if values:
        return frozenset(
            kind
            for value in values
            for kind in ("string", "number", "integer", "boolean", "null", "array", "object")
            if is_of_type(value, kind)
        )
    if "properties" in variant:
        return frozenset({"object"})
    return None


def fits(value: object, variant: Schema) -> bool:
    """Whether ``value`` is of a type that ``variant`` allows."""
    allowed = kinds(variant)
    return allowed is None or any(is_of_type(value, kind) for kind in allowed)


def is_of_type(value: object, kind: str) -> bool:
    """Whether ``value`` is of JSON Schema's type ``kind``; 5.0 is an integer, true is not."""
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int):
        return kind in ("integer", "number")
    if isinstance(value, float):
        return kind == "number" or (kind == "integer" and value.is_integer())
    if isinstance(value, str):
        return kind == "string"
    if value is None:
        return kind == "null"
    return kind == ("array" if isinstance(value, list) else "object")
