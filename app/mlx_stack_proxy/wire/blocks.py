"""Caches what a reader made of a transcript's beginning, so that only new messages are read.

A client sends its whole transcript with every turn, so nearly all messages of a request were in the
previous one. :class:`Blocks` hashes each prefix of a transcript, block by block. A reader stores
its result for a prefix in a :class:`PrefixCache`, under that hash, and reads only the messages
after it. Each request hashes its whole transcript, so hashing must be about as fast as memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import orjson

from ..recent import Recent

BLOCK: Final = 16  # messages
MAX_KNOWN: Final = 4096  # prefixes that a reader remembers: enough for 160 runs of 400 messages
_SYSTEM: Final = ("system", "developer")

_V = TypeVar("_V")


class Blocks:
    """The messages of one request in blocks.

    Leading system messages belong to no block, because some agents write the time into them.
    """

    __slots__ = ("head", "messages", "names")

    def __init__(self, messages: Sequence[Any]) -> None:
        lead = 0
        for message in messages:
            if not isinstance(message, dict) or message.get("role") not in _SYSTEM:
                break
            lead += 1
        self.head = messages[:lead]
        self.messages = messages[lead:] if lead else messages  # without the leading system messages
        # For each full block: a hash of all blocks up to it and of the number of leading system
        # messages. Valid in this process only.
        self.names: list[int] = []
        name = lead
        for end in range(BLOCK, len(self.messages) + 1, BLOCK):
            name = hash((name, dumped(self.messages[end - BLOCK : end])))
            self.names.append(name)


class PrefixCache(Generic[_V]):
    """What one reader has made of transcripts' prefixes, each of which ends with a block."""

    __slots__ = ("_values",)

    def __init__(self, most: int = MAX_KNOWN) -> None:
        self._values: Recent[int, _V] = Recent(most)

    def values(self) -> list[_V]:
        """Return all values, the newest last."""
        return [*self._values.values()]

    def read(self, blocks: Blocks, initial: _V, read: Callable[[_V, Sequence[Any]], _V]) -> _V:
        """Return what ``read`` makes of all messages after the leading system messages.

        ``read`` takes its result for the messages before (at first ``initial``) and the next
        messages. It must not change that result, nor return None.
        """
        names, messages = blocks.names, blocks.messages
        known_blocks, cached = len(names), None
        while known_blocks and (cached := self._values.get(names[known_blocks - 1])) is None:
            known_blocks -= 1
        value = initial if cached is None else cached
        end = len(names) * BLOCK
        if known_blocks < len(names):
            value = read(value, messages[known_blocks * BLOCK : end])
        if names:
            self._values[names[-1]] = value
        return read(value, messages[end:])


def messages_in(body: Mapping[str, Any]) -> list[Any] | None:
    """Return a request's messages; None if they are not a list."""
    messages = body.get("messages")
    return messages if isinstance(messages, list) else None


def dumped(value: Any) -> bytes:
    """Write a value as JSON, or as :func:`dumped_leniently` does if orjson refuses the value."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):  # a lone surrogate, deep nesting, a type that JSON lacks
        return dumped_leniently(value)


def dumped_leniently(value: Any) -> bytes:
    """Write a value that orjson refuses (long numbers, lone surrogates, deep nesting) as bytes.

    Equal values give equal bytes. The bytes are not JSON.
    """
    parts: list[str] = []
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            parts.append(f"{{{len(item)}")
            for key in sorted(item, key=str, reverse=True):
                pending += (item[key], key)
        elif isinstance(item, (list, tuple)):
            parts.append(f"[{len(item)}")
            pending += reversed(item)
        else:
            parts.append(repr(item))
    return " ".join(parts).encode("utf-8", "surrogatepass")
