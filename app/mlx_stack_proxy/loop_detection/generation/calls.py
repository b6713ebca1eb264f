"""Counts equal calls in one reply: same tool and same arguments, whatever their ids.

:class:`NativeCalls` counts ``tool_calls`` while they come. :class:`WrittenCalls` counts calls that
the model writes as text: it reads a text for calls only once that repeats itself, and again once it
is a quarter longer. At the end of the reply such calls have become ``tool_calls`` and count so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...tool_validation.text_calls import Holdback, rescue_cut
from ...tool_validation.tools import ToolSet
from ...wire.events import ToolCallDelta
from ...wire.reply import ToolCall
from ..call_keys import canonical
from .limits import Found, RepeatedCall

_GROWTH = 1.25  # of a text, until it is read for calls again
Key = tuple[str, str]  # name, canonical arguments


class Repeats:
    """Counts calls; the one after ``most`` equal ones is one too many, except of exempt tools."""

    __slots__ = ("_counts", "_exempt", "_most", "tool")

    def __init__(self, most: int, exempt: Sequence[str]) -> None:
        self._most = most
        self._exempt = frozenset(exempt)
        self._counts: Counter[Key] = Counter()
        self.tool = ""  # the tool of the first surplus call; "": there is none

    def add(self, key: Key) -> bool:
        """Count a call; whether it is one too many."""
        if key[0] in self._exempt:
            return False
        self._counts[key] += 1
        if self._counts[key] <= self._most:
            return False
        self.tool = self.tool or key[0]
        return True

    def kept(self, calls: Iterable[ToolCall]) -> list[ToolCall]:
        """The calls without those that are too many."""
        return [call for call in calls if not self.add(key_of(call))]


def key_of(call: ToolCall) -> Key:
    """What equal calls share."""
    return call.name, canonical(call.arguments)


@dataclass(slots=True)
class _Coming:
    index: int
    name: str
    pieces: list[str]


class NativeCalls:
    """The ``tool_calls`` of one choice, while they come. A call is complete when the next begins.

    Pieces that come for a complete call are ignored; no server is known to send such.
    """

    __slots__ = ("_coming", "_repeats", "_seen")

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats
        self._coming: _Coming | None = None
        self._seen: set[int] = set()

    def add(self, delta: ToolCallDelta) -> bool:
        """Take in a piece; whether the call that it completes is one too many."""
        coming = self._coming
        if coming is not None and coming.index == delta.index:
            coming.name = coming.name or delta.name
            coming.pieces.append(delta.arguments)
            return False
        self._coming = None
        if delta.index not in self._seen:
            self._seen.add(delta.index)
            self._coming = _Coming(delta.index, delta.name, [delta.arguments])
        if coming is None:
            return False
        return self._repeats.add((coming.name, canonical("".join(coming.pieces))))


class WrittenCalls:
    """The text of one choice. ``tools()``: the tools whose calls are read out of text."""

    __slots__ = ("_due", "_exempt", "_most", "_tools", "is_open")

    def __init__(self, most: int, exempt: Sequence[str], tools: Callable[[], ToolSet]) -> None:
        self._most = most
        self._exempt = exempt
        self._tools = tools
        self._due = 0  # the length of text at which it is read again
        self.is_open = False  # the last repetition stands inside a call, not between calls

    def look(self, text: str, end: int, laps: int, found: Found | None) -> RepeatedCall | None:
        """A repeated call in ``text[:end]``, whose end repeats itself ``laps`` times.

        ``found``: the repetition that is long enough to end a text without calls.
        """
        if end < self._due and (self.is_open or found is None):
            return None
        if found is None and laps <= self._most:
            return None
        self._due = int(end * _GROWTH)
        text, tools = text[:end], self._tools()
        least = self._most if found is None else 0
        if not any(text.count(name) > least for name in tools.names):
            return None
        read = rescue_cut(self.closed(text), tools)
        if found is not None:
            middle = (found.start + found.end) // 2
            self.is_open = text[found.start : middle] not in read.content
        repeats = Repeats(self._most, self._exempt)
        repeats.kept([ToolCall("", call.name, call.arguments) for call in read.calls])
        return RepeatedCall(repeats.tool) if repeats.tool else None

    def before(self, text: str) -> str:
        """The part of a text before its first call."""
        return Holdback(self._tools()).feed(text)

    def closed(self, text: str) -> str:
        """A text that was cut, with an open list of calls closed after its last complete call."""
        if not text.lstrip().startswith("[") or rescue_cut(text, self._tools()).calls:
            return text
        return text[: max(text.rfind(")"), text.rfind("}")) + 1] + "]"
