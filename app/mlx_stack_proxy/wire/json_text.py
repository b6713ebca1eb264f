"""Reads JSON strictly and within caps; errors say what is wrong in words that a model can use.

orjson reads first, because it is fast. If orjson refuses a text, or an object may give one key
twice, Python's ``json`` reads the text again and finds what is wrong.
"""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any, Final

import orjson

# Nobody computes with a number longer than this. (Python's own limit is 4,300 digits.)
MAX_DIGITS: Final = 1_000
MAX_CHARS: Final = 1_000_000  # characters of one text
MAX_DEPTH: Final = 64  # levels of nesting
NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")
_STEPS: Final = {"{": 1, "[": 1, "}": -1, "]": -1}
_TOKENS = re.compile(r'\\.|["\[\]{}]', re.DOTALL)
_KEY = re.compile(r'"\s*:')
_SURROGATE = re.compile("[\ud800-\udfff]")


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


class JsonEnd:
    """Looks for the end of a JSON object that comes in pieces; linear in the pieces' length."""

    __slots__ = ("_backslash", "_depth", "_in_string", "blank", "over", "reached")

    def __init__(self) -> None:
        self.blank = True  # nothing but blanks has come
        self.reached = False  # the first bracket is closed, and only blanks came after it
        self.over = False  # more came after that
        self._depth = 0  # open brackets
        self._in_string = False
        self._backslash = ""  # at the last piece's end, without what it escapes

    def add(self, piece: str) -> None:
        """Take in the next piece."""
        if self.over or not piece or piece.isspace():
            return
        if self.reached:
            self.reached, self.over = False, True
            return
        self.blank = False
        piece = self._backslash + piece
        for token in _TOKENS.finditer(piece):
            mark = token[0]
            if mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string and (step := _STEPS.get(mark)):
                self._depth += step
                if self._depth <= 0:
                    self.over = bool(piece[token.end() :].strip())
                    self.reached = not self.over
                    return
        self._backslash = "\\" if (len(piece) - len(piece.rstrip("\\"))) % 2 else ""


def parse(text: str) -> Any:
    """Return the value of a JSON text, in linear time. Integers beyond 64 bits may become floats.

    Raises :class:`Unreadable`, also if an object gives one key two different values, because
    readers disagree about which of them counts.
    """
    if len(text) > MAX_CHARS:
        raise Unreadable("too_large", f"are larger than {MAX_CHARS:,} characters")
    try:
        value = orjson.loads(text)
    except ValueError:
        check_depth(text)
        return parse_exactly(text)
    check_depth(text)
    if len(_KEY.findall(text)) != _count_keys(value):  # strings may add matches, never hide any
        parse_exactly(text)  # raises if one key has two values
    return value


def parse_exactly(text: str) -> Any:
    """Parse like :func:`parse`, slower and without its caps, but keep integers of any size."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _explained(text, error.msg, error.pos) from None
    except RecursionError:
        raise Unreadable("too_deep", "are nested too deeply") from None


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


def write(value: Any) -> str:
    """Write a value as JSON text; with lone surrogates, which have no UTF-8, as ASCII escapes."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if _SURROGATE.search(text):
        return json.dumps(value, ensure_ascii=True, allow_nan=False)
    return text


def _explained(text: str, message: str, position: int) -> Unreadable:
    if not text.strip():
        return Unreadable("invalid_json", "are empty")
    if position >= len(text.rstrip()) or message.startswith("Unterminated string"):
        return Unreadable("truncated", "break off before their end")
    return not_json(text, message[:1].lower() + message[1:], position)


def not_json(text: str, problem: str, position: int) -> Unreadable:
    """Make the error for a problem at an index of the text."""
    around = text[max(0, position - 20) : position + 20]
    return Unreadable(
        "invalid_json",
        f"are not valid JSON: {problem} at character {position + 1}, near `{around}`",
    )


def _count_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(
            _count_keys(sub) for sub in value.values() if isinstance(sub, dict | list)
        )
    if isinstance(value, list):
        return sum(_count_keys(sub) for sub in value if isinstance(sub, dict | list))
    return 0


def read_number(text: str) -> int | float:
    """Return a finite number of sensible length. Raises :class:`Unreadable` for any other."""
    if len(text) > MAX_DIGITS:
        raise Unreadable("invalid_json", f"hold a number of {len(text):,} digits")
    if text.lstrip("-").isdecimal():
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise Unreadable("invalid_json", f"hold the number {text[:40]}, which is too large")
    return value


def _no_constant(text: str) -> Any:
    raise Unreadable("invalid_json", f"hold {text}, which JSON does not have")


def join_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its members. Raises :class:`Unreadable` if one key has two values."""
    joined = dict(pairs)
    if len(joined) < len(pairs):
        for key, value in pairs:
            if joined[key] != value or isinstance(joined[key], bool) is not isinstance(value, bool):
                name = key[:80].encode("utf-8", "replace").decode()
                raise Unreadable(
                    "duplicate_key", f'give the field "{name}" twice, with different values'
                )
    return joined


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=join_pairs,
    parse_constant=_no_constant,
    parse_float=read_number,
    parse_int=read_number,
)
