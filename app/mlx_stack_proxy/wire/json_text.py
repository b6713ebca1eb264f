"""Reading JSON strictly, within caps, and saying what is wrong in words that a model can use."""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any, Final

import orjson

# A number longer than this is no number anyone computes with (Python itself stops at 4,300).
MAX_DIGITS: Final = 1_000
MAX_CHARS: Final = 1_000_000  # of one text
MAX_DEPTH: Final = 64  # levels of nesting
NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")
_STEPS: Final = {"{": 1, "[": 1, "}": -1, "]": -1}
_KEY = re.compile(r'"\s*:')
_SURROGATE = re.compile("[\ud800-\udfff]")


class Unreadable(Exception):
    """A text that is not the JSON it should be.

    `kind` is a label for metrics (``invalid_json``, ``truncated``, ``too_large``, ``too_deep``,
    ``duplicate_key``), `message` the rest of a sentence that begins with what the text is.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def parse(text: str) -> Any:
    """The value that `text` stands for, in linear time.

    Integers beyond 64 bits may come back as floats. Raises `Unreadable`, also where an object
    gives one key two different values: readers disagree about which of them counts.
    """
    if len(text) > MAX_CHARS:
        raise Unreadable("too_large", f"are larger than {MAX_CHARS:,} characters")
    try:
        value = orjson.loads(text)
    except ValueError:
        check_depth(text)
        return parse_exactly(text)
    check_depth(text)
    if len(_KEY.findall(text)) != _count_keys(value):  # strings may hold more, never fewer
        parse_exactly(text)  # raises, where one key has two values
    return value


def parse_exactly(text: str) -> Any:
    """Like `parse`, slower and without caps, but integers of any size stay integers."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _explained(text, error.msg, error.pos) from None
    except RecursionError:
        raise Unreadable("too_deep", "are nested too deeply") from None


def check_depth(text: str) -> None:
    """Raise `Unreadable` where brackets outside strings nest deeper than `MAX_DEPTH`."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    brackets = _NO_BRACKETS.sub("", _STRINGS.sub("", text))
    check_levels(max(accumulate(map(_STEPS.__getitem__, brackets)), default=0))


def check_levels(levels: int) -> None:
    """Raise `Unreadable` for more than `MAX_DEPTH`."""
    if levels > MAX_DEPTH:
        raise Unreadable("too_deep", f"are nested more than {MAX_DEPTH} levels deep")


def write(value: Any) -> str:
    """`value` as JSON text; what has no UTF-8 (lone surrogates) is escaped."""
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


def not_json(text: str, what: str, position: int) -> Unreadable:
    """The error that says what is wrong at this place."""
    around = text[max(0, position - 20) : position + 20]
    return Unreadable(
        "invalid_json", f"are not valid JSON: {what} at character {position + 1}, near `{around}`"
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
    """A finite number of sensible length; raises `Unreadable`."""
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
    """An object from its members; raises `Unreadable` where one key has two values."""
    joined = dict(pairs)
    if len(joined) < len(pairs):
        for key, value in pairs:
            if joined[key] != value or isinstance(joined[key], bool) is not isinstance(value, bool):
                shown = key[:80].encode("utf-8", "replace").decode()
                raise Unreadable(
                    "duplicate_key", f'give the field "{shown}" twice, with different values'
                )
    return joined


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=join_pairs,
    parse_constant=_no_constant,
    parse_float=read_number,
    parse_int=read_number,
)
