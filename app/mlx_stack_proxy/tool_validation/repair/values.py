"""Convert values of a wrong JSON type that have one reading only in the right type.

A converter gets a value and the types that are allowed (or the schema's variant), and returns the
converted value or ``NOTHING``. Type converters run only if no variant allows the value's own type.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ...wire.json_reader import JsonReader
from ...wire.json_text import MAX_DIGITS, NUMBER, Unreadable, read_number
from .variants import Schema, kinds


class _Nothing:
    """The type of ``NOTHING``: None can't say "no value", because it is JSON's null."""


NOTHING: Final = _Nothing()

_BOOLEANS: Final = {"true": True, "false": False}
_NULLS: Final = ("null", "None", "NULL")
_ONE_WORD: Final = re.compile(r"[^\s\[{(,;|、，；][^\s,;|、，；]*")
_LENIENT_IN_STRINGS: Final = frozenset({"single_quotes", "python_literals", "trailing_comma"})


def number_from_string(value: Any, allowed: frozenset[str]) -> Any:
    """Convert ``"5"`` to 5. Not ``"five"``, ``"5 km"``, ``"1,000"`` or ``"007"``."""
    if not isinstance(value, str) or not allowed & {"number", "integer"}:
        return NOTHING
    if not NUMBER.fullmatch(value.strip()):
        return NOTHING
    try:
        number = read_number(value.strip())
    except Unreadable:
        return NOTHING
    is_whole = isinstance(number, int) or number.is_integer()
    return number if is_whole or "number" in allowed else NOTHING


def boolean_from_string(value: Any, allowed: frozenset[str]) -> Any:
    """Convert ``"true"`` and ``"False"`` in any case. Not ``"yes"``, ``"1"`` or ``"on"``."""
    if not isinstance(value, str) or "boolean" not in allowed:
        return NOTHING
    return _BOOLEANS.get(value.strip().lower(), NOTHING)


def null_from_string(value: Any, allowed: frozenset[str]) -> Any:
    """Convert ``"null"`` and ``"None"`` to null. Not ``""`` or ``"undefined"``."""
    if isinstance(value, str) and "null" in allowed and value.strip() in _NULLS:
        return None
    return NOTHING


def string_from_integer(value: Any, allowed: frozenset[str]) -> Any:
    """Convert 5 to ``"5"``. Not 5.0, true or null, which could be written in several ways."""
    if "string" in allowed and isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**MAX_DIGITS else NOTHING
    return NOTHING


def container_from_string(value: Any, allowed: frozenset[str]) -> Any:
    """Convert ``"[1, 2]"`` to [1, 2], and an object's text to the object: JSON's or Python's."""
    if not isinstance(value, str):
        return NOTHING
    text = value.strip()
    kind = {"[": "array", "{": "object"}.get(text[:1])
    if kind not in allowed:
        return NOTHING
    reader = JsonReader(text)
    try:
        container = reader.value()
    except Unreadable:
        return NOTHING
    is_whole = reader.position == len(text) and _LENIENT_IN_STRINGS.issuperset(reader.used)
    return container if is_whole else NOTHING


def array_from_value(value: Any, variant: Schema) -> Any:
    """Wrap a lone value in an array. Not a text of several words: it may be several items."""
    allowed = kinds(variant)
    if allowed is None or "array" not in allowed or value is None or isinstance(value, list):
        return NOTHING
    if null_from_string(value, allowed) is None:
        return NOTHING
    return NOTHING if isinstance(value, str) and not _ONE_WORD.fullmatch(value.strip()) else [value]


def enum_spelling(value: Any, options: list[Any]) -> Any:
    """Return the one option that differs from ``value`` only by case, spaces, ``-`` or ``_``."""
    if not isinstance(value, str) or value in options:
        return NOTHING
    spelled = _spelled(value)
    matches = [
        option for option in options if isinstance(option, str) and _spelled(option) == spelled
    ]
    return matches[0] if len(matches) == 1 and spelled else NOTHING


def _spelled(text: str) -> str:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return re.sub(r"[\s_-]+", " ", spaced).strip().casefold()
