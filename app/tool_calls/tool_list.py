"""A request's tools as an earlier request had them, so that nothing is found out of them twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson

Small = TypeVar("Small", int, bool, bytes)


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

    def made(self, of: Callable[[Sequence[Any]], Small]) -> Small:
        """What a function makes of them, asked but once; or twice, by two threads.

        It is kept as long as the list is, so it is to be no larger than that as JSON.
        """
        try:
            found: Small = self._made[of]
        except KeyError:
            found = self._made[of] = of(self)
        return found


def made_of(tools: Any, of: Callable[[Any], Small]) -> Small:
    """What a function makes of a request's tools; of those that came before it was asked before."""
    return tools.made(of) if type(tools) is ToolList else of(tools)
