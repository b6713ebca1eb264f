"""Reads two kinds of JSON that orjson refuses: half characters, and numbers beyond any float.

JSON escapes a character beyond U+FFFF as a pair (``\\ud83d\\ude00`` is one emoji). A server that
cuts its text within a pair sends half a character, which orjson, like any strict reader, refuses.
orjson also refuses a number that no float holds, such as a count of 400 digits in a usage.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import orjson

_HUGE = re.compile(rb"\d{300}|\d[eE]\+?\d{3}")
# A string in JSON that ends in the first half of a character, or begins with the second.
_FIRST_HALF = re.compile('([\ud800-\udbff])"')
_SECOND_HALF = re.compile('"([\udc00-\udfff])')


def read(data: bytes, *, huge: bool = False, join: Callable[[str], str] = str) -> tuple[Any, bool]:
    """Return the value of a JSON text, and whether the text is strict JSON.

    ``huge``: accept numbers that no float holds, as text, so that a reader of numbers refuses them.
    ``join`` gets a JSON text with halves, unescaped, and returns it with halves put together. Two
    halves side by side become one character; a half that stays alone becomes U+FFFD.

    Raises ``ValueError``, orjson's own, for a text with any other fault.
    """
    try:
        return orjson.loads(data), True
    except orjson.JSONDecodeError as error:
        if b"\\u" not in data and not (huge and _HUGE.search(data)):
            raise
        number = _number if huge else None
        try:
            payload = json.loads(data, parse_int=number, parse_float=number)
            text = join(json.dumps(payload, ensure_ascii=False))
            halved = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return orjson.loads(halved), False
        except (ValueError, RecursionError):
            raise error from None


def _number(text: str) -> int | float | str:
    """Return the number; for one that no float holds, its first 64 characters as text."""
    value = float(text)
    if not math.isfinite(value):
        return text[:64]
    return int(text) if text.lstrip("-").isdigit() else value


class Halves:
    """Joins characters that one stream's events cut in two. At most one half waits at a time."""

    def __init__(self) -> None:
        self._first_half = ""

    def join(self, text: str) -> str:
        """Put the waiting half before its second half, and keep the text's own first half back."""
        if self._first_half and (second := _SECOND_HALF.search(text)):
            text = f"{text[: second.start(1)]}{self._first_half}{text[second.start(1) :]}"
            self._first_half = ""
        if first := _FIRST_HALF.search(text):
            self._first_half = first[1]
            text = text[: first.start()] + text[first.end(1) :]
        return text
