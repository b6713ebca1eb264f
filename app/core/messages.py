"""A request's messages, of which those that came before are parsed only where somebody looks."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import orjson


class Known(NamedTuple):
    """What is known of the parts of messages that came before.

    ``lead``: how many of the first are the system's. ``names``: of the blocks behind them. ``at``:
    where in the request's body those end.
    """

    lead: int
    names: list[int]
    at: int


def plain(value: Any) -> list[Any]:
    """What ``orjson.dumps`` is to write for :class:`Messages`. Raises TypeError for all else."""
    if isinstance(value, Messages):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


class Part:
    """``count`` messages as they stand in the JSON of ``raw``, from ``begin`` up to ``end``."""

    __slots__ = ("_parsed", "begin", "count", "end", "raw")

    def __init__(self, raw: bytes, begin: int, end: int, count: int) -> None:
        self.raw = raw
        self.begin = begin
        self.end = end
        self.count = count
        self._parsed: list[Any] | None = None

    @property
    def messages(self) -> list[Any]:
        if self._parsed is None:
            self._parsed = orjson.loads(b"[%b]" % self.raw[self.begin : self.end])
        return self._parsed


class Messages(Sequence[Any]):
    """``parts``: the first of them, one or more, between which nothing but a comma stands; each was
    read in an earlier request. ``rest``: what follows. They are never changed: who wants others
    makes a list.
    """

    __slots__ = ("_before", "_parts", "_starts", "known", "rest")

    def __init__(self, parts: Sequence[Part], rest: list[Any], known: Known) -> None:
        self.known = known
        self._parts = parts
        self._starts = list(itertools.accumulate((part.count for part in parts), initial=0))
        self._before = self._starts.pop()
        self.rest = rest

    @property
    def before(self) -> int:
        """How many there are in parts."""
        return self._before

    @property
    def json_before(self) -> memoryview:
        """The parts as they came, without brackets."""
        first, last = self._parts[0], self._parts[-1]
        return memoryview(first.raw)[first.begin : last.end]

    def without_first(self) -> Messages:
        """Those behind the first part."""
        return Messages(self._parts[1:], self.rest, self.known)

    def __len__(self) -> int:
        return self._before + len(self.rest)

    def __iter__(self) -> Iterator[Any]:
        parts: Iterable[list[Any]] = (part.messages for part in self._parts)
        return itertools.chain(itertools.chain.from_iterable(parts), self.rest)

    def __reversed__(self) -> Iterator[Any]:
        yield from reversed(self.rest)
        for part in reversed(self._parts):
            yield from reversed(part.messages)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if start >= self._before and step > 0:
                return self.rest[start - self._before : stop - self._before : step]
            return [self[one] for one in range(start, stop, step)]
        place = at if at >= 0 else at + len(self)
        if place >= self._before:
            return self.rest[place - self._before]
        if place < 0:
            raise IndexError("there are not so many messages")
        part = bisect.bisect_right(self._starts, place) - 1
        return self._parts[part].messages[place - self._starts[part]]
