"""Splits a request's messages into blocks, and names each block by a hash of its content.

A client sends its whole transcript with every turn, so nearly all messages of a request came with
the request before. A reader (``loop_detection/history.py``) keeps what it has read of each block
under the block's name, and reads only new blocks. The hashing alone runs over every whole
transcript, so it has to be about as fast as memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

BLOCK: Final = 32  # messages
_SYSTEM: Final = ("system", "developer")


class Blocks:
    """The blocks of one request.

    The system messages at the head belong to none, for some agents write the time into them.
    """

    __slots__ = ("messages", "names")

    def __init__(self, messages: Sequence[Any]) -> None:
        lead = 0
        while lead < len(messages) and _is_systems(messages[lead]):
            lead += 1
        self.messages = messages[lead:] if lead else messages  # those after the head
        starts = range(0, len(self.messages) - BLOCK + 1, BLOCK)
        # Hashes, valid in this process only. Messages after the last full block are in none.
        self.names = [hash(dumped(self.messages[start : start + BLOCK])) for start in starts]


def _is_systems(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in _SYSTEM


def messages_in(body: Mapping[str, Any], field: str = "messages") -> list[Any] | None:
    """Return a request's messages; None if the field is not a list."""
    found = body.get(field)
    return found if isinstance(found, list) else None


def dumped(value: Any) -> bytes:
    """Write a value as JSON, or as :func:`walked` does if orjson refuses it."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):  # a lone surrogate, deep nesting, a type that JSON lacks
        return walked(value)


def walked(value: Any) -> bytes:
    """Write a value that orjson refuses (long numbers, lone surrogates, deep nesting) as bytes.

    Equal values give equal bytes. The bytes are not JSON.
    """
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
