"""The last check on a repair: nothing that the model wrote may be missing from the result."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from app.tool_calls.json_text import Unreadable
from app.tool_calls.lenient_json import Reader
from app.tool_calls.names import squash

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,999})")


def keeps_everything(before: Any, after: Any, dropped: Iterable[Any] = ()) -> bool:
    """Whether every scalar of `before` is in `after`, or in `dropped` (left out on purpose).

    Scalars are compared without case and separators, so that ``"5"`` is 5, ``"Celsius"`` is
    ``"celsius"``, and a string that holds JSON is what it holds.
    """
    missing = Counter(_tokens(before))
    missing.subtract(_tokens(after))
    for item in dropped:
        missing.subtract(_tokens(item))
    return all(count <= 0 for count in missing.values())


def _tokens(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _tokens(item)
    elif isinstance(value, list):
        for item in value:
            yield from _tokens(item)
    elif isinstance(value, str):
        yield from _tokens_of_text(value)
    elif isinstance(value, bool) or value is None:
        yield str(value).casefold()
    elif isinstance(value, float) and value.is_integer():
        yield str(int(value))
    else:
        yield str(value)


def _tokens_of_text(text: str) -> Iterable[str]:
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        reader = Reader(stripped)
        try:
            held = reader.value()
        except Unreadable:
            held = stripped
        if not isinstance(held, str) and reader.position == len(stripped):
            yield from _tokens(held)
            return
    if _INTEGER.fullmatch(stripped):
        yield str(int(stripped))  # of any size: a long id has more digits than a float
        return
    try:
        number = float(stripped)
    except ValueError:
        yield squash(text)
    else:
        yield str(int(number)) if number.is_integer() else str(number)
