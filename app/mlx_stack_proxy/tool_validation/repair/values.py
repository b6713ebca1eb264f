"""Repairs an object's members: misspelled, null or surplus parameters, and values of a wrong type.

``Mender`` walks a value along its schema, so a rule applies at every depth. It converts a value
only if the schema allows no value of its type and exactly one conversion is possible. The caller
validates the result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any, Final

from ...wire.json_reader import JsonReader
from ...wire.json_text import MAX_DIGITS, NUMBER, Unreadable, read_number
from ..names import by_spelling, nearest, squash
from .variants import Schema, fits, kinds, variants

MAX_UNKNOWN: Final = 32  # surplus parameters dropped from one object; more are no accident
MAX_VALUES: Final = 20_000  # values visited in one call; visiting one costs as much as checking it

_BOOLEANS: Final = {"true": True, "false": False}
_NULLS: Final = ("null", "None", "NULL")
_ONE_WORD: Final = re.compile(r"[^\s\[{(,;|、，；][^\s,;|、，；]*")
_LENIENT_IN_STRINGS: Final = frozenset({"single_quotes", "python_literals", "trailing_comma"})

Members = dict[str, Any]


class Mender:
    """One pass over one value, along a cleaned schema."""

    def __init__(self) -> None:
        self.rules: dict[str, None] = {}  # names of the rules applied, in order
        self._values_left = MAX_VALUES
        # Variants by the id of their schema, which outlives the pass.
        self._variants: dict[int, list[Schema]] = {}

    def mend(self, value: Any, schema: object) -> Any:
        """Return ``value`` repaired; its type changes only if just one conversion is possible."""
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
        # names that match a pattern are allowed, but their values are not visited
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
    """Map keys to the one wanted name from which they differ by case and separators only."""
    undeclared = by_spelling(key for key in value if key not in declared)
    absent = by_spelling(name for name in dict.fromkeys(wanted) if name not in value)
    return {key: absent[spelled] for spelled, key in undeclared.items() if spelled in absent}


def _surplus(value: Members, declared: set[str], required: Collection[str]) -> list[str]:
    """Return the parameters that the schema forbids and that can be dropped without loss.

    There are none if a required one is missing, or if one of them may be a misnamed parameter.
    """
    unknown, absent = [key for key in value if key not in declared], declared - value.keys()
    if len(unknown) > MAX_UNKNOWN or not absent.isdisjoint(required):
        return []
    if not {squash(key) for key in declared}.isdisjoint(map(squash, unknown)):
        return []  # one parameter in two spellings
    for key in unknown:
        holds_another = isinstance(value[key], dict) and not absent.isdisjoint(value[key])
        if holds_another or nearest(key, absent, 1):
            return []
    return unknown


def conversions(value: Any, variant: Schema) -> Iterator[tuple[Any, str]]:
    """Yield what ``value`` may mean in the types of a schema's variant, and the rule's name.

    The caller has checked that no variant allows the value's own type.
    """
    allowed = kinds(variant) or frozenset()
    is_null = False
    if isinstance(value, str):
        text = value.strip()
        # Not "five", "5 km", "1,000" or "007"; not "yes", "1" or "on"; not "" or "undefined".
        if allowed & {"number", "integer"} and NUMBER.fullmatch(text):
            with suppress(Unreadable):
                number = read_number(text)
                if "number" in allowed or isinstance(number, int) or number.is_integer():
                    yield number, "number_from_string"
        if "boolean" in allowed and text.lower() in _BOOLEANS:
            yield _BOOLEANS[text.lower()], "boolean_from_string"
        if is_null := "null" in allowed and text in _NULLS:
            yield None, "null_from_string"
        container = container_in(text) if allowed & {"array", "object"} else None
        if isinstance(container, list) and "array" in allowed:
            yield container, "array_from_string"
        elif isinstance(container, dict) and "object" in allowed:
            yield container, "object_from_string"
        if not _ONE_WORD.fullmatch(text):
            return  # it may be several items of an array
    # Not 5.0, which could be written in several ways.
    elif "string" in allowed and type(value) is int and abs(value) < 10**MAX_DIGITS:
        yield str(value), "string_from_integer"
    if "array" in allowed and value is not None and not is_null and not isinstance(value, list):
        yield [value], "array_from_value"


def container_in(value: Any) -> list[Any] | dict[str, Any] | None:
    """Return the list or object in ``value``, a JSON or Python text; else None."""
    text = value.strip() if isinstance(value, str) else ""
    reader = JsonReader(text)
    with suppress(Unreadable):
        container = reader.value() if text.startswith(("[", "{")) else None
        if reader.position == len(text) and _LENIENT_IN_STRINGS.issuperset(reader.used):
            return container
    return None


def enum_spelling(value: Any, options: list[Any]) -> str | None:
    """Return the one option that differs from ``value`` only by case, spaces, ``-`` or ``_``."""
    if not isinstance(value, str) or value in options or not (spelled := _spelled(value)):
        return None
    texts = (option for option in options if isinstance(option, str))
    matches = [option for option in texts if _spelled(option) == spelled]
    return matches[0] if len(matches) == 1 else None


def _spelled(text: str) -> str:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return re.sub(r"[\s_-]+", " ", spaced).strip().casefold()
