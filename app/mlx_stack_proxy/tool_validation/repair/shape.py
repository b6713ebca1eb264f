"""Mend an object's members: misspelled, null or surplus parameters, and values of a wrong type.

``Mender`` walks a value along its schema, so a rule applies at every depth. It converts a value
only if the schema allows no value of its type and exactly one conversion is possible. The caller
validates the result.
"""

from __future__ import annotations

from typing import Any, Final

from ..names import by_spelling, nearest, squash
from .values import conversions, enum_spelling
from .variants import Schema, fits, variants

MAX_UNKNOWN: Final = 32  # surplus parameters dropped from one object; more are not a slip
MAX_VALUES: Final = 20_000  # values walked in one call; to walk one costs as much as to check it


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
        if fitting or not choices:
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
        if "enum" in variant:
            option = enum_spelling(value, variant["enum"])
            if option is not None:
                self.rules["enum_spelling"] = None
                return option
        return value

    def _object(self, value: dict[str, Any], variant: Schema) -> dict[str, Any]:
        properties: dict[str, Any] = variant.get("properties", {})
        required: list[str] = variant.get("required", [])
        additional = (
            True if variant.get("patternProperties") else variant.get("additionalProperties", True)
        )
        closed = additional is False
        renamed = self._rename(value, {**dict.fromkeys(required), **properties}, required, closed)
        mended: dict[str, Any] = {}
        for key, item in renamed.items():
            schema = properties.get(key, additional)
            optional = item is None and key in properties and key not in required
            if optional and not any(fits(None, variant) for variant in self._choices(schema)):
                self.rules["optional_null"] = None
            else:
                mended[key] = self.mend(item, schema)
        return self._drop_unknown(mended, properties, required) if closed else mended

    def _rename(
        self, value: dict[str, Any], declared: dict[str, Any], required: list[str], closed: bool
    ) -> dict[str, Any]:
        """Rename parameters that differ from one declared name by case and separators only."""
        undeclared = by_spelling([key for key in value if key not in declared])
        absent = by_spelling(
            [name for name in declared if name not in value and (closed or name in required)]
        )
        names = {key: absent[spelled] for spelled, key in undeclared.items() if spelled in absent}
        if names:
            self.rules["parameter_spelling"] = None
        return {names.get(key, key): item for key, item in value.items()}

    def _drop_unknown(
        self, value: dict[str, Any], properties: dict[str, Any], required: list[str]
    ) -> dict[str, Any]:
        """Drop parameters that the schema forbids.

        Keep them all if a required one is missing, or one of them may be a misnamed parameter.
        """
        declared = {*properties, *required}
        unknown = [key for key in value if key not in declared]
        absent = declared - value.keys()
        if not unknown or len(unknown) > MAX_UNKNOWN or absent.intersection(required):
            return value
        if any(_may_be_meant(key, value[key], absent) for key in unknown):
            return value
        if not {squash(key) for key in declared}.isdisjoint(map(squash, unknown)):
            return value  # one parameter came in two spellings
        self.rules["unknown_parameter"] = None
        return {key: item for key, item in value.items() if key in declared}


def _may_be_meant(key: str, item: Any, absent: set[str]) -> bool:
    """Whether a surplus parameter may be a misnamed one of the ``absent``, declared parameters."""
    inside = isinstance(item, dict) and not absent.isdisjoint(item)
    return inside or bool(nearest(key, absent, 1))
