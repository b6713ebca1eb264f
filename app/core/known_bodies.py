"""What a body has in common with those before it: its tools, and how its messages begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import orjson

from . import beginnings, known_tools
from .blocks import Blocks

_P = ParamSpec("_P")
_T = TypeVar("_T")


class KnownBodies:
    """Bounded; threads may share one.

    ``report``: told of a fault in here, and in which part. Then a body is read as if nothing was
    known.
    """

    def __init__(self, report: Callable[[str, Exception], None] | None = None) -> None:
        self._report = report
        self.beginnings = beginnings.Beginnings()
        self.tools = known_tools.KnownTools()

    def body(self, raw: bytes) -> tuple[dict[str, Any] | None, bytes]:
        """The request in a body, as far as something of it came before; None: read it whole.

        With what its messages stand in, which :meth:`learn` is to be given: the body, or that
        without its tools.
        """
        taken = self._safely(known_tools.NAME, self.tools.taken, raw)
        if taken is None:
            return self._safely(beginnings.NAME, self.beginnings.body, raw), raw
        rest, tools = taken
        body = self._safely(beginnings.NAME, self.beginnings.body, rest)
        if body is None:
            try:
                body = orjson.loads(rest)
            except orjson.JSONDecodeError:
                return None, raw  # whoever reads it whole says where
        if not isinstance(body, dict) or not self.tools.put(body, tools):
            return None, raw
        return body, rest

    def learn(self, raw: bytes, body: Mapping[str, Any], blocks: Blocks) -> None:
        """Keep of a request that was read, and is good, what the next may have in common."""
        self._safely(beginnings.NAME, self.beginnings.learn, raw, blocks)
        self._safely(known_tools.NAME, self.tools.learn, raw, body)

    def _safely(
        self, part: str, ask: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T | None:
        try:
            return ask(*args, **kwargs)
        except Exception as error:
            if self._report is None:
                raise
            self._report(part, error)
            return None
