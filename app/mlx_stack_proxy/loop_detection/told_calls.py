"""Calls and results that a client's transcript tells as text, where others send `tool_calls`.

smolagents does: it appends `Calling tools:` and Python's own words for the list of calls, each with
a fresh id, to the assistant's text, and sends their results together as a message of the user's
that begins with `Observation:` or `Error:`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..wire.chunks import text_of
from ..wire.json_text import Unreadable
from ..wire.lenient_json import Reader

MAX_TEXT: Final = 65_536  # characters of the calls; longer ones stay text
_HEAD: Final = "Calling tools:\n["
_RESULT: Final = re.compile(r"(?:Call id: \S*\n)?(?=Error:\n)|Observation:\n")
# What it calls the running of a code agent's own text, which stands before it already.
_CODE: Final = "python_interpreter"


def split(text: str) -> tuple[str, list[dict[str, Any]]]:
    """The assistant's own text, and the calls told after it, shaped as `tool_calls`, without ids.

    What can't be read whole stays text.
    """
    start = text.rfind(_HEAD)
    if start < 0 or (start and text[start - 1] != "\n") or len(text) - start > MAX_TEXT:
        return text, []
    try:
        calls = _read(text, start + len(_HEAD) - 1)
    except Unreadable:
        return text, []
    if not calls:
        return text, []
    made = [{"function": call} for call in calls if call["name"] != _CODE]
    return text[: max(start - 1, 0)], made


def result(content: Any) -> Any:
    """The content of the result that a user's message tells; None where it tells none."""
    text = text_of(content)
    found = _RESULT.match(text)
    if found is None:
        return None
    told = text[found.end() :]
    if not isinstance(content, list):
        return told
    others = [one for one in content if not (isinstance(one, Mapping) and "text" in one)]
    return [{"type": "text", "text": told}, *others]


def _read(text: str, position: int) -> list[dict[str, Any]]:
    """The functions called; empty where it is another list. Raises `Unreadable`."""
    reader = Reader(text, position)
    listed = reader.value()
    if text[reader.position :].strip():
        return []
    calls = [one.get("function") if isinstance(one, dict) else None for one in listed]
    good = [one for one in calls if isinstance(one, dict) and isinstance(one.get("name"), str)]
    return good if len(good) == len(calls) else []
