"""Mend an object's members: misspelled, null or surplus parameters, and values of a wrong type.

``Mender`` walks a value along its schema, so a rule applies at every depth. It converts a value
only if the schema allows no value of its type and exactly one conversion is possible. The caller
validates the result.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ..names import by_spelling, nearest, squash
from .values import conversions, enum_spelling
from .variants import Schema, fits, variants

MAX_UNKNOWN: Final = 32  # surplus parameters dropped from one object; more are not a slip
MAX_VALUES: Final = 20_000  # values walked in one call; to walk one costs as much as to check it

Members = dict[str, Any]


class Mender:
    """One pass over one value, along a cleaned schema."""

    def __init__(self) -> None:
        self.rules: dict[str, None] = {}  # names of the rules applied, in order
        self._values_left = MAX_VALUES
        # Variants by the id of their schema, which outlives the pass.
        self._variants: dict[int, list[Schema]] = {}

    def mend(self, value: Any, schema: object) -> Any:
        """Return ``value`` mended; its own type stays unless exactly one conversion is possible."""
        self._values_left -= 1
        if self._values_left < 0:
            return value
        choices = self._choices(schema)
        fitting = [variant for variant in choices if fits(value, variant)]
        if len(fitting) == 1:
            return self._inside(value, fitting[0])
        if fitting:
            return value
        results: list[tuple[Any, str, Schema]] = []
        for variant in choices:
            for result, rule in conversions(value, variant):
                if not any(type(result) is type(one) and result == one for one, _, _ in results):
                    results.append((result, rule, variant))
        if len(results) != 1:
            return value
        result, rule, variant = results[0]
        self.rules[rule] = None
        return self._inside(result, variant)

    def _choices(self, schema: object) -> list[Schema]:
        choices = self._variants.get(id(schema))
        if choices is None:
            choices = self._variants[id(schema)] = variants(schema)
        return choices

    def _inside(self, value: Any, variant: Schema) -> Any:
        if isinstance(value, dict):
            return self._object(value, variant)
        if isinstance(value, list):
            items = True if "prefixItems" in variant else variant.get("items", True)
            return [self.mend(item, items) for item in value]
        option = enum_spelling(value, variant.get("enum", ()))
        if option is None:
            return value
        self.rules["enum_spelling"] = None
        return option

    def _object(self, value: Members, variant: Schema) -> Members:
        properties, required = variant.get("properties", {}), variant.get("required", ())
        # What a pattern names is allowed; only its values are not walked.
        named = bool(variant.get("patternProperties"))
        additional = True if named else variant.get("additionalProperties", True)
        closed = additional is False
        declared = {*properties, *required}
        names = _other_spellings(value, declared, declared if closed else required)
        if names:
            self.rules["parameter_spelling"] = None
        mended: Members = {}
        for key, item in ((names.get(key, key), item) for key, item in value.items()):
            schema = properties.get(key, additional)
            optional = item is None and key in properties and key not in required
            if optional and not any(fits(None, variant) for variant in self._choices(schema)):
                self.rules["optional_null"] = None
            else:
                mended[key] = self.mend(item, schema)
        unknown = _surplus(mended, declared, required) if closed else []
        if unknown:
            self.rules["unknown_parameter"] = None
        return {key: item for key, item in mended.items() if key not in unknown}


def _other_spellings(value: Members, declared: set[str], wanted: Collection[str]) -> dict[str, str]:
    """Return the keys that differ from one wanted name by case and separators only, with it."""
    undeclared = by_spelling(key for key in value if key not in declared)
    absent = by_spelling(name for name in dict.fromkeys(wanted) if name not in value)
    return {key: absent[spelled] for spelled, key in undeclared.items() if spelled in absent}


def _surplus(value: Members, declared: set[str], required: Collection[str]) -> list[str]:
    """Return the parameters that the schema forbids and nothing is lost with.

    There are none if a required one is missing, or one of them may be a misnamed parameter.
    """
    unknown, absent = [key for key in value if key not in declared], declared - value.keys()
    if len(unknown) > MAX_UNKNOWN or not absent.isdisjoint(required):
        return []
    if not {squash(key) for key in declared}.isdisjoint(map(squash, unknown)):
        return []  # one parameter came in two spellings
    for key in unknown:
        holds_another = isinstance(value[key], dict) and not absent.isdisjoint(value[key])
        if holds_another or nearest(key, absent, 1):
            return []
    return unknown
