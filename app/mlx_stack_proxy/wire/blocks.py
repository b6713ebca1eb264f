"""Recognises the messages that came with an earlier request, so that they are not read again.

A client sends its whole transcript with every turn, so nearly all messages of a request came with
the request before. :class:`Blocks` names each beginning of a transcript, block by block, by a hash
of its content. A reader keeps in a :class:`Known` what it has made of a beginning, under that name,
and reads only the messages after it. The hashing alone runs over every whole transcript, so it has
to be about as fast as memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import orjson

from ..recent import Recent

BLOCK: Final = 16  # messages
MAX_KNOWN: Final = 4096  # beginnings that a reader remembers: those of 160 runs of 400 messages
_SYSTEM: Final = ("system", "developer")

_V = TypeVar("_V")


class Blocks:
    """The messages of one request in blocks.

    The system messages at the head belong to none, for some agents write the time into them.
    """

    __slots__ = ("head", "messages", "names")

    def __init__(self, messages: Sequence[Any]) -> None:
        lead = 0
        while lead < len(messages) and _is_systems(messages[lead]):
            lead += 1
        self.head = messages[:lead]
        self.messages = messages[lead:] if lead else messages  # those after the head
        # For each full block: a hash of it, of all before it and of how many are at the head. Valid
        # in this process only.
        self.names: list[int] = []
        name = lead
        for end in range(BLOCK, len(self.messages) + 1, BLOCK):
            name = hash((name, dumped(self.messages[end - BLOCK : end])))
            self.names.append(name)


class Known(Generic[_V]):
    """What one reader has made of the beginnings of transcripts: of each, up to its last block."""

    __slots__ = ("_values",)

    def __init__(self, most: int = MAX_KNOWN) -> None:
        self._values: Recent[int, _V] = Recent(most)

    def read(self, blocks: Blocks, begin: _V, read: Callable[[_V, Sequence[Any]], _V]) -> _V:
        """Return what ``read`` makes of all messages behind the head.

        ``read`` gets what it made of the messages before, at first ``begin``, and the next
        messages. It must not change what it gets, nor return None.
        """
        names, messages = blocks.names, blocks.messages
        known, found = len(names), None
        while known and (found := self._values.get(names[known - 1])) is None:
            known -= 1
        value = begin if found is None else found
        end = len(names) * BLOCK
        if known < len(names):
            value = read(value, messages[known * BLOCK : end])
        if names:
            self._values[names[-1]] = value
        return read(value, messages[end:])


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
