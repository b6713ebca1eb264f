"""A request's messages in blocks that are known again by what they say.

A client sends its transcript anew with every turn, so that nearly all of a request's messages came
with the one before. What is to be known of each of them (whether it is well formed, how long it
is) is found out once for a block, and remembered by the block's name. All of a transcript goes
through here with every request, therefore: at about the speed of memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import orjson

BLOCK: Final = 32  # messages that are known again together
KNOWN: Final = 4096  # blocks of which something is remembered: some 300 transcripts of 400 messages
_SYSTEM: Final = ("system", "developer")

T = TypeVar("T")


class Blocks:
    """``messages``: anything that JSON can hold, for who checks them comes here, too.

    ``lead``: how many of the first are the system's. They are in no block, for some agents write
    the time into them. ``names``: of the blocks behind them, hashes of this process's own; what
    is left at the end is in none. ``said``: the messages behind the lead.
    """

    __slots__ = ("lead", "messages", "names", "said")

    def __init__(self, messages: Sequence[Any]) -> None:
        self.messages = messages
        self.lead = 0
        while self.lead < len(messages) and is_systems(messages[self.lead]):
            self.lead += 1
        self.said = messages[self.lead :] if self.lead else messages
        starts = range(self.lead, len(messages) - BLOCK + 1, BLOCK)
        self.names = [hash(dumped(messages[start : start + BLOCK])) for start in starts]


class Remembered(Generic[T]):
    """A function of some messages, asked but once of a block that comes again. Bounded.

    What it gives must follow from the messages alone. Threads may share one.
    """

    def __init__(self, of: Callable[[Sequence[Any]], T], known: int = KNOWN) -> None:
        self._of = of
        self._most = known
        self._known: OrderedDict[int, T] = OrderedDict()

    def parts(self, blocks: Blocks) -> Iterable[tuple[int, T]]:
        """What it gives for each part of the messages, and where that begins."""
        if blocks.names:
            return self._parts(blocks)
        messages = blocks.messages  # a short request: nothing to be known again
        return ((0, self._of(messages)),) if messages else ()

    def _parts(self, blocks: Blocks) -> Iterator[tuple[int, T]]:
        messages, start = blocks.messages, blocks.lead
        if start:
            yield 0, self._of(messages[:start])
        for name in blocks.names:
            yield start, self._of_block(name, messages, start)
            start += BLOCK
        if start < len(messages):
            yield start, self._of(messages[start:])

    def _of_block(self, name: int, messages: Sequence[Any], start: int) -> T:
        known = self._known
        try:
            found = known.pop(name)
        except KeyError:
            found = self._of(messages[start : start + BLOCK])
        known[name] = found  # the last that is forgotten
        while len(known) > self._most:
            known.popitem(last=False)
        return found


def is_systems(message: Any) -> bool:
    """Whether a message is the system's; anything that JSON can hold may be asked about."""
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
