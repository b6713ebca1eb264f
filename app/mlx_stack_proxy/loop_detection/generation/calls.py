"""Counts equal calls in one reply: same tool and same arguments, whatever their ids.

:class:`CallCounter` counts ``tool_calls``. :class:`WrittenCalls` counts calls that the model writes
as text: it searches a text for calls only once the text repeats itself, and again once the text is
a quarter longer. At the end of the reply such calls have become ``tool_calls`` and are counted as
those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ...tool_validation.text_calls import Holdback, rescue_cut
from ...tool_validation.tools import ToolSet
from ...wire.call import Call
from ..call_keys import canonical
from .limits import Excess

_GROWTH = 1.25  # a text is searched again when it has grown by this factor


class CallCounter:
    """Counts equal calls. Those after the first ``limit`` are surplus, except for exempt tools."""

    def __init__(self, limit: int, exempt: Sequence[str]) -> None:
        self._limit, self._exempt = limit, exempt
        self._counts: Counter[tuple[str, str]] = Counter()  # by name and canonical arguments
        self._counted = 0  # counted by :meth:`look`
        self.tool = ""  # the tool of the first surplus call; "": there is none

    def kept(self, calls: Iterable[Call]) -> list[Call]:
        """Count calls; return those that are not surplus."""
        kept = []
        for call in calls:
            key = call.name, canonical(call.arguments)
            self._counts[key] += call.name not in self._exempt
            if self._counts[key] <= self._limit:
                kept.append(call)
            else:
                self.tool = self.tool or call.name
        return kept

    def look(self, calls: Sequence[Call]) -> bool:
        """Count new calls except the last, which may grow. Return whether one is surplus."""
        complete = calls[self._counted : -1]
        self._counted += len(complete)
        return len(self.kept(complete)) < len(complete)


class WrittenCalls:
    """Finds calls in one choice's text. ``tools``: the tools whose calls are recognised."""

    def __init__(self, limit: int, exempt: Sequence[str], tools: ToolSet) -> None:
        self._limit, self._exempt, self._tools = limit, exempt, tools
        self._due = 0  # the length at which the text is searched again
        self.is_open = False  # whether the last repetition is inside a call, not between calls

    def look(self, text: str, end: int, laps: int, excess: Excess | None) -> Excess | None:
        """Return a surplus call in ``text[:end]``, whose end repeats itself ``laps`` times.

        ``excess``: a repetition that is long enough to end a text without calls, if there is one.
        """
        if end < self._due and (self.is_open or excess is None):
            return None
        if excess is None and laps <= self._limit:
            return None
        self._due = int(end * _GROWTH)
        text, tools = text[:end], self._tools
        threshold = self._limit if excess is None else 0
        if not any(text.count(name) > threshold for name in tools.names):
            return None
        rescued = rescue_cut(closed(text, tools), tools)
        if excess is not None:
            middle = (excess.start + excess.end) // 2
            self.is_open = text[excess.start : middle] not in rescued.content
        counter = CallCounter(self._limit, self._exempt)
        counter.kept(rescued.calls)
        return Excess("calls", 0, end) if counter.tool else None


def prose_before(text: str, tools: ToolSet) -> str:
    """Return the part of a text before its first call."""
    return Holdback(tools).feed(text)


def closed(text: str, tools: ToolSet) -> str:
    """Close the open list of calls in a cut text, after its last complete call."""
    if not text.lstrip().startswith("[") or rescue_cut(text, tools).calls:
        return text
    return text[: max(text.rfind(")"), text.rfind("}")) + 1] + "]"
