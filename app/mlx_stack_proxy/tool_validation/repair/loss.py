"""The last check on a repair: nothing that the model wrote may be missing from the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ...wire.json_text import Unreadable
from ...wire.lenient_json import Reader
from ..names import squash


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
        held = _held(value.strip())
        yield from _tokens(held) if not isinstance(held, str) else [squash(value)]
    elif isinstance(value, bool) or value is None:
        yield str(value).casefold()
    elif isinstance(value, float) and value.is_integer():
        yield str(int(value))
    else:
        yield str(value)


def _held(text: str) -> Any:
    """What a text says as JSON, also as models write that; else the text."""
    reader = Reader(f"{text} ")  # a number ends before a space
    try:
        held = reader.value()
    except Unreadable:
        return text
    return text if text[reader.position :].strip() else held
