"""JSON without our parser: limits, errors, and decoding by libraries.

``decode`` reads JSON from the network; ``json_reader`` reads JSON that a model wrote.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

import orjson

MAX_DIGITS: Final = 4_300  # of a number: Python's own limit
MAX_CHARS: Final = 1_000_000  # characters of one text
MAX_DEPTH: Final = 64  # levels of nesting
NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")
_STEPS: Final = {"{": 1, "[": 1, "}": -1, "]": -1}
_SURROGATE = re.compile("[\ud800-\udfff]")
_HUGE = re.compile(rb"\d{300}|\d[eE]\+?\d{3}")


class Unreadable(Exception):
    """A text can't be read as JSON.

    ``kind`` is a label for metrics (``invalid_json``, ``truncated``, ``too_large``, ``too_deep``,
    ``duplicate_key``). ``message`` completes a sentence that begins with the name of the text, in
    the plural: "The arguments …".
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def not_json(text: str, problem: str, position: int) -> Unreadable:
    """Make the error for a problem at a position in the text."""
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    place = f"at line {line}, column {column}, near `{text[max(0, position - 20) : position + 20]}`"
    return Unreadable("invalid_json", f"are not valid JSON: {problem} {place}")


def decode(
    data: bytes, *, huge: bool = False, join: Callable[[str], str] = str
) -> tuple[Any, bool]:
    """Return the value of a JSON text, and whether every strict parser reads it the same.

    This also reads two things that orjson refuses. JSON escapes a character beyond U+FFFF as a
    surrogate pair (``\\ud83d\\ude00``), and a server that splits its text within a pair sends half
    a character. ``join`` gets the unescaped text and returns it with halves joined. Two adjacent
    halves become one character; a half that stays alone becomes U+FFFD.
    ``huge``: numbers too large for a float are read as text, so that a reader of numbers refuses
    them.

    Raises orjson's ``ValueError`` for any other fault.
    """
    try:
        return orjson.loads(data), True
    except orjson.JSONDecodeError as error:
        if b"\\u" not in data and not (huge and _HUGE.search(data)):
            raise
        number = _number_or_text if huge else None
        try:
            payload = json.loads(data, parse_int=number, parse_float=number)
            text = join(json.dumps(payload, ensure_ascii=False))
            halved = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return orjson.loads(halved), False
        except (ValueError, RecursionError):
            raise error from None


def check_depth(text: str) -> None:
    """Raise :class:`Unreadable` if brackets outside strings nest deeper than ``MAX_DEPTH``."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    brackets = _NO_BRACKETS.sub("", _STRINGS.sub("", text))
    check_levels(max(accumulate(map(_STEPS.__getitem__, brackets)), default=0))


def check_levels(levels: int) -> None:
    """Raise :class:`Unreadable` for more levels than ``MAX_DEPTH``."""
    if levels > MAX_DEPTH:
        raise Unreadable("too_deep", f"are nested more than {MAX_DEPTH} levels deep")


def read_number(text: str) -> int | float:
    """Return a finite number of at most ``MAX_DIGITS`` digits, or raise :class:`Unreadable`."""
    if len(text) > MAX_DIGITS:
        raise Unreadable("invalid_json", f"hold a number of {len(text):,} digits")
    if text.lstrip("-").isdecimal():
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise Unreadable("invalid_json", f"hold the number {text[:40]}, which is too large")
    return value


def _number_or_text(text: str) -> int | float | str:
    """Return a number; if it is too large for a float, its first 64 characters as text."""
    value = float(text)
    if not math.isfinite(value):
        return text[:64]
    return int(text) if text.lstrip("-").isdigit() else value


def join_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its members. Raises :class:`Unreadable` if a key has two values."""
    joined = dict(pairs)
    if len(joined) < len(pairs):
        for key, value in pairs:
            if joined[key] != value or isinstance(joined[key], bool) is not isinstance(value, bool):
                name = key[:80].encode("utf-8", "replace").decode()
                raise Unreadable(
                    "duplicate_key", f'give the field "{name}" twice, with different values'
                )
    return joined


def write(value: Any) -> str:
    """Write a value as JSON text; lone surrogates, which UTF-8 can't encode, as escapes."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if _SURROGATE.search(text):
        return json.dumps(value, ensure_ascii=True, allow_nan=False)
    return text
