"""Where a JSON value stands in a text, of those that every parser reads alike.

orjson says what is in a text, not where. The standard library's decoder says where a value ends; it
is slower by a factor of ten, so what asks here bounds what it asks.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_SPACE: Final = re.compile(r"[ \t\n\r]*")


def value_at(text: str, at: int) -> tuple[Any, int]:
    """The value at a place in a text, behind blanks, and where it ends.

    Raises ValueError, RecursionError for none, or one that some parser reads otherwise: with a key
    twice in one object, or a whole number of more than 64 bits.
    """
    return _DECODER.raw_decode(text, behind_space(text, at))


def behind_space(text: str, at: int) -> int:
    """Where it goes on behind blanks."""
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice, of which some take the first and some the last")
    return found


def _whole_number(text: str) -> int:
    if len(text) > len("-9223372036854775807"):
        raise ValueError("a number that some round")
    return int(text)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_int=_whole_number)
