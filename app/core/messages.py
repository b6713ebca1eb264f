"""A request's messages, of which those that came before are parsed only where somebody looks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, overload

import orjson

BLOCK: Final = 32  # messages that are known again together


class Part:
    """A block of messages as it stands in the JSON of ``raw``, from ``begin`` up to ``end``.

    ``name``: the block's, a hash.
    """

    __slots__ = ("_parsed", "begin", "end", "name", "raw")

    def __init__(self, raw: bytes, begin: int, end: int, name: int) -> None:
        self.raw = raw
        self.begin = begin
        self.end = end
        self.name = name
        self._parsed: list[Any] | None = None

    @property
    def messages(self) -> list[Any]:
        if self._parsed is None:
            self._parsed = orjson.loads(b"[%b]" % self.raw[self.begin : self.end])
        return self._parsed


class Messages(Sequence[Any]):
    """``lead``: the system's, which come first. ``parts``: one or more that follow them, between
    which nothing but a comma stands; each was read in an earlier request. ``rest``: what is behind.
    They are never changed: who wants others makes a list. (To ask whether something is of an
    abstract class takes a while: ask for its type.)
    """

    __slots__ = ("before", "lead", "parts", "rest")

    def __init__(self, lead: list[Any], parts: Sequence[Part], rest: list[Any]) -> None:
        self.lead = lead
        self.parts = parts
        self.rest = rest
        self.before = len(lead) + BLOCK * len(parts)  # how many aren't in the rest

    @property
    def parts_as_json(self) -> memoryview:
        """The parts as they came, without brackets."""
        first, last = self.parts[0], self.parts[-1]
        return memoryview(first.raw)[first.begin : last.end]

    def without_lead(self) -> Messages:
        return Messages([], self.parts, self.rest)

    def __len__(self) -> int:
        return self.before + len(self.rest)

    def __iter__(self) -> Iterator[Any]:
        parts = (part.messages for part in self.parts)
        return itertools.chain(self.lead, itertools.chain.from_iterable(parts), self.rest)

    def __reversed__(self) -> Iterator[Any]:
        yield from reversed(self.rest)
        for part in reversed(self.parts):
            yield from reversed(part.messages)
        yield from reversed(self.lead)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if self.before <= start <= stop and step > 0:
                return self.rest[start - self.before : stop - self.before : step]
            return [self[one] for one in range(start, stop, step)]
        place = at if at >= 0 else at + len(self)
        if place >= self.before:
            return self.rest[place - self.before]
        if place < 0:
            raise IndexError("there are not so many messages")
        if place < len(self.lead):
            return self.lead[place]
        part, inside = divmod(place - len(self.lead), BLOCK)
        return self.parts[part].messages[inside]


def messages_in(body: Mapping[str, Any], field: str = "messages") -> list[Any] | Messages | None:
    """A request's messages, where it has a list of them."""
    found = body.get(field)
    return found if type(found) is Messages or isinstance(found, list) else None


def is_object(arguments: str) -> bool:
    """Whether the arguments of a call are what servers take in a history: one JSON object."""
    try:
        return isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False


def plain(value: Any) -> list[Any]:
    """What ``orjson.dumps`` is to write for :class:`Messages`. Raises TypeError for all else."""
    if type(value) is Messages:
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
