"""Convert values of a wrong JSON type that have one reading only in the right type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from ...wire.json_reader import JsonReader
from ...wire.json_text import MAX_DIGITS, NUMBER, Unreadable, read_number
from .variants import Schema, kinds

_BOOLEANS: Final = {"true": True, "false": False}
_NULLS: Final = ("null", "None", "NULL")
_ONE_WORD: Final = re.compile(r"[^\s\[{(,;|、，；][^\s,;|、，；]*")
_LENIENT_IN_STRINGS: Final = frozenset({"single_quotes", "python_literals", "trailing_comma"})


def conversions(value: Any, variant: Schema) -> Iterator[tuple[Any, str]]:
    """Yield what ``value`` may mean in the types of a schema's variant, and the rule's name.

    The caller has seen that no variant allows the value's own type.
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
    """Return the list or object whose whole text ``value`` is, JSON's or Python's; else None."""
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
