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

Place = tuple[int, ...]
# What a reply's texts so far left half: by where it stood and its field, the first half.
Halves = dict[tuple[Place, str], str]
_HUGE = re.compile(rb"\d{300}|\d[eE]\+?\d{3}")


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


def loads(data: bytes, join: Callable[[Any], None] | None = None, *, huge: bool = True) -> Any:
    """Parse JSON that orjson refused; a half that stays alone becomes U+FFFD.

    ``join`` is given the value before that. Raises ``ValueError`` where it is not JSON for another
    reason.
    """
    if b"\\u" not in data and not (huge and _HUGE.search(data)):
        raise ValueError("not JSON, and not for want of half a character")
    try:
        payload = (
            json.loads(data, parse_int=_number, parse_float=_number) if huge else json.loads(data)
        )
        if join is not None:
            join(payload)
        text = json.dumps(payload, ensure_ascii=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Two halves side by side become one character on the way.
    return orjson.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _number(text: str) -> int | float | str:
    """The number; its beginning as text for one that no float holds."""
    value = float(text)
    if not math.isfinite(value):
        return text[:64]
    return int(text) if text.lstrip("-").isdigit() else value


def join_texts(holder: dict[str, Any], place: Place, halves: Halves) -> None:
    """Put the halves that wait before the texts, and let those wait that end them now."""
    for field, text in holder.items():
        if not isinstance(text, str) or not text:
            continue
        key = (place, field)
        whole = halves.pop(key, "") + text
        if "\ud800" <= whole[-1] <= "\udbff":
            halves[key] = whole[-1]
            whole = whole[:-1]
        holder[field] = whole
