"""A request's tools as an earlier request had them, so that nothing is found out of them twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson

T = TypeVar("T")


class ToolList(list[Any]):
    """Shared by all requests that offer these tools; never changed, nor is anything in it.

    ``written``: as they came, JSON.
    """

    __slots__ = ("_made", "written")

    def __init__(self, tools: Sequence[Any], written: bytes) -> None:
        super().__init__(tools)
        self.written = written
        self._made: dict[Any, Any] = {}

    @property
    def as_json(self) -> orjson.Fragment:
        """What ``orjson.dumps`` writes as they came."""
        return orjson.Fragment(self.written)

    def made(self, of: Callable[[Sequence[Any]], T]) -> T:
        """What a function makes of them, asked but once. It may be asked twice, by two threads."""
        try:
            found: T = self._made[of]
        except KeyError:
            found = self._made[of] = of(self)
        return found


def made_of(tools: Any, of: Callable[[Any], T]) -> T:
    """What a function makes of a request's tools; of those that came before it was asked before."""
    return tools.made(of) if type(tools) is ToolList else of(tools)
