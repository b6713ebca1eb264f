"""JSON that orjson refuses, read as what was meant: half characters, numbers beyond all bounds.

Beyond U+FFFF JSON's escapes come in pairs (``\\ud83d\\ude00`` is one emoji). A server that cuts its
text between them sends half of one, which orjson, like any strict reader, takes for no JSON at all.
Nor does it take a number that no float holds, as a count of 400 digits in a usage.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import orjson

_HUGE = re.compile(rb"\d{300}|\d[eE]\+?\d{3}")
# Of JSON's texts those that end in the first half of a character, or begin with the second.
_FIRST_HALF = re.compile('([\ud800-\udbff])"')
_SECOND_HALF = re.compile('"([\udc00-\udfff])')


def read(data: bytes, *, huge: bool = False) -> Any:
    """Parse JSON, whether it has half characters or not. Raises ``ValueError``, orjson's own.

    ``huge``: numbers that no float holds become text, so that whoever wants a number refuses them.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        try:
            return loads(data, huge=huge)
        except ValueError:
            raise error from None


def loads(data: bytes, *, huge: bool = True, join: Callable[[str], str] = str) -> Any:
    """Parse JSON that orjson refused. Raises ``ValueError`` where it is none for another reason.

    ``join``: is given JSON with its halves, two of which that meet are one character. A half that
    stays alone becomes U+FFFD.
    """
    if b"\\u" not in data and not (huge and _HUGE.search(data)):
        raise ValueError("not JSON, and not for want of half a character")
    number = _number if huge else None
    try:
        payload = json.loads(data, parse_int=number, parse_float=number)
        text = join(json.dumps(payload, ensure_ascii=False))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return orjson.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _number(text: str) -> int | float | str:
    """The number; its beginning as text for one that no float holds."""
    value = float(text)
    if not math.isfinite(value):
        return text[:64]
    return int(text) if text.lstrip("-").isdigit() else value


class Halves:
    """Joins what the texts of one stream's events leave half; one text at a time is cut."""

    def __init__(self) -> None:
        self._first = ""

    def join(self, text: str) -> str:
        """JSON with the half that waits before its second; its own last one waits instead."""
        if self._first and (second := _SECOND_HALF.search(text)):
            text = f"{text[: second.start(1)]}{self._first}{text[second.start(1) :]}"
            self._first = ""
        if first := _FIRST_HALF.search(text):
            self._first = first[1]
            text = text[: first.start()] + text[first.end(1) :]
        return text
