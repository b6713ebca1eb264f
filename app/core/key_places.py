"""Where the value of a key may stand in a body that isn't parsed yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_KEYS: Final = 2  # of a name, where one is inside of something,
_NAMES: Final = 16  # and of all places where it stands, as a value, say


def places(raw: bytes, name: bytes, behind: re.Pattern[bytes]) -> Iterator[int]:
    """Where it goes on behind a name and what follows it, for the first few.

    ``name``: with its quotes. ``behind``: what makes a key of it.
    """
    at, keys = raw.find(name), 0
    for _ in range(_NAMES):
        if at < 0 or keys == _KEYS:
            return
        found = behind.match(raw, at + len(name))
        if found is not None:
            keys += 1
            yield found.end()
        at = raw.find(name, at + len(name))
