"""JSON with half characters in it, read as what was meant.

Beyond U+FFFF JSON's escapes come in pairs (``\\ud83d\\ude00`` is one emoji). A server that cuts its
text between them sends half of one, which orjson, like any strict reader, takes for no JSON at all.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

# What the chunks of a reply so far left half: by where in a chunk it stood, the first half.
Halves = dict[tuple[str, ...], str]


def read(data: bytes) -> Any:
    """Parse JSON, whether it has half characters or not. Raises ``ValueError``, orjson's own."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        try:
            return loads(data)
        except ValueError:
            raise error from None


def loads(data: bytes, halves: Halves | None = None) -> Any:
    """Parse JSON that orjson refused; a half that stays alone becomes U+FFFD.

    With ``halves``, one that ends a delta's text waits there for the other half, in a later
    chunk. Raises ``ValueError`` where it is not JSON for another reason.
    """
    if b"\\u" not in data:
        raise ValueError("not JSON, and not for want of half a character")
    try:
        payload = json.loads(data)
        if halves is not None:
            _join_deltas(payload, halves)
        text = json.dumps(payload, ensure_ascii=False)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Two halves side by side become one character on the way.
    return orjson.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _join_deltas(payload: Any, halves: Halves) -> None:
    for position, choice in enumerate(_list(payload, "choices")):
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            continue
        index = str(choice.get("index", position))
        _join(delta, (index,), halves)
        for place, call in enumerate(_list(delta, "tool_calls")):
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                _join(function, (index, str(call.get("index", place))), halves)


def _list(holder: Any, field: str) -> list[Any]:
    found = holder.get(field) if isinstance(holder, dict) else None
    return found if isinstance(found, list) else []


def _join(holder: dict[str, Any], place: tuple[str, ...], halves: Halves) -> None:
    """Put the halves that wait before the texts, and let those wait that end them now."""
    for field, text in holder.items():
        if not isinstance(text, str) or not text:
            continue
        key = (*place, field)
        whole = halves.pop(key, "") + text
        if "\ud800" <= whole[-1] <= "\udbff":
            halves[key] = whole[-1]
            whole = whole[:-1]
        holder[field] = whole
