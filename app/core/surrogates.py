"""JSON with half characters in it, read as what was meant.

Beyond U+FFFF JSON's escapes come in pairs (``\\ud83d\\ude00`` is one emoji). A server that cuts its
text between them sends half of one, which orjson, like any strict reader, takes for no JSON at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

Place = tuple[int, ...]
# What a reply's texts so far left half: by where it stood and its field, the first half.
Halves = dict[tuple[Place, str], str]


def read(data: bytes) -> Any:
    """Parse JSON, whether it has half characters or not. Raises ``ValueError``, orjson's own."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        try:
            return loads(data)
        except ValueError:
            raise error from None


def loads(data: bytes, join: Callable[[Any], None] | None = None) -> Any:
    """Parse JSON that orjson refused; a half that stays alone becomes U+FFFD.

    ``join`` is given the value before that. Raises ``ValueError`` where it is not JSON for another
    reason.
    """
    if b"\\u" not in data:
        raise ValueError("not JSON, and not for want of half a character")
    try:
        payload = json.loads(data)
        if join is not None:
            join(payload)
        text = json.dumps(payload, ensure_ascii=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Two halves side by side become one character on the way.
    return orjson.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


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
