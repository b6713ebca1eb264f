"""A request's messages in blocks that are known again by what they say.

A client sends its transcript anew with every turn, so that nearly all of a request's messages came
with the one before. What was read of them (``loop_detection/history.py``) is found again by the
names of their blocks. All of a transcript goes through here with every request, therefore: at about
the speed of memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

BLOCK: Final = 32  # messages that are known again together
_SYSTEM: Final = ("system", "developer")


class Blocks:
    """``said``: the messages behind the system's first ones, into which some agents write the time.

    ``names``: of their blocks, hashes of this process's own; what is left at the end is in none.
    """

    __slots__ = ("names", "said")

    def __init__(self, messages: Sequence[Any]) -> None:
        lead = 0
        while lead < len(messages) and _is_systems(messages[lead]):
            lead += 1
        self.said = messages[lead:] if lead else messages
        starts = range(0, len(self.said) - BLOCK + 1, BLOCK)
        self.names = [hash(dumped(self.said[start : start + BLOCK])) for start in starts]


def _is_systems(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in _SYSTEM


def messages_in(body: Mapping[str, Any], field: str = "messages") -> list[Any] | None:
    """A request's messages, where it has a list of them."""
    found = body.get(field)
    return found if isinstance(found, list) else None


def dumped(value: Any) -> bytes:
    """JSON, or what stands for it."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):  # a lone surrogate, deep nesting, or what never came from JSON
        return walked(value)


def walked(value: Any) -> bytes:
    """The same for what orjson can't write: long numbers, lone surrogates, deep nesting."""
    parts: list[str] = []
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            parts.append(f"{{{len(one)}")
            for key in sorted(one, key=str, reverse=True):
                left += (one[key], key)
        elif isinstance(one, (list, tuple)):
            parts.append(f"[{len(one)}")
            left += reversed(one)
        else:
            parts.append(repr(one))
    return " ".join(parts).encode("utf-8", "surrogatepass")
