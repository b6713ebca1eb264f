"""Counts equal calls in one reply: same tool and same arguments, whatever their ids.

:class:`NativeCalls` counts ``tool_calls`` while they come. :class:`WrittenCalls` counts calls that
the model writes as text: it reads a text for calls only once the text repeats itself, and again
once the text is a quarter longer. At the end of the reply such calls have become ``tool_calls``,
and are counted as those.
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

_GROWTH = 1.25  # a text that has grown by this factor is read for calls again
Key = tuple[str, str]  # name, canonical arguments


class Repeats:
    """Counts equal calls. Those after the first ``most`` are surplus, except of exempt tools."""

    __slots__ = ("_counts", "_exempt", "_most", "tool")

    def __init__(self, most: int, exempt: Sequence[str]) -> None:
        self._most = most
        self._exempt = frozenset(exempt)
        self._counts: Counter[Key] = Counter()
        self.tool = ""  # the tool of the first surplus call; "": there is none

    def add(self, key: Key) -> bool:
        """Count a call. Return whether it is surplus."""
        if key[0] in self._exempt:
            return False
        self._counts[key] += 1
        if self._counts[key] <= self._most:
            return False
        self.tool = self.tool or key[0]
        return True

    def kept(self, calls: Iterable[ToolCall]) -> list[ToolCall]:
        """Return the calls without the surplus ones."""
        return [call for call in calls if not self.add(key_of(call))]


def key_of(call: ToolCall) -> Key:
    """Return what equal calls have in common: the name and the canonical arguments."""
    return call.name, canonical(call.arguments)


@dataclass(slots=True)
class _Coming:
    index: int
    name: str
    pieces: list[str]


class NativeCalls:
    """Counts one choice's ``tool_calls`` as they come. A call is complete when the next begins.

    Pieces that come for a complete call are ignored; no server is known to send any.
    """

    __slots__ = ("_coming", "_repeats", "_seen")

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats
        self._coming: _Coming | None = None
        self._seen: set[int] = set()

    def add(self, delta: ToolCallDelta) -> bool:
        """Take in a piece. Return whether the call that it completes is surplus."""
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
    """Finds calls in one choice's text. ``tools()``: the tools whose calls are read out of text."""

    __slots__ = ("_due", "_exempt", "_most", "_tools", "is_open")

    def __init__(self, most: int, exempt: Sequence[str], tools: Callable[[], ToolSet]) -> None:
        self._most = most
        self._exempt = exempt
        self._tools = tools
        self._due = 0  # the length of text at which it is read again
        self.is_open = False  # whether the last repetition lies inside a call, not between calls

    def look(self, text: str, end: int, laps: int, found: Found | None) -> RepeatedCall | None:
        """Return a surplus call in ``text[:end]``, the end of which repeats itself ``laps`` times.

        ``found``: a repetition that is long enough to end a text without calls, if there is one.
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
        """Return the part of a text before its first call."""
        return Holdback(self._tools()).feed(text)

    def closed(self, text: str) -> str:
        """Close the open list of calls in a text that was cut, after its last complete call."""
        if not text.lstrip().startswith("[") or rescue_cut(text, self._tools()).calls:
            return text
        return text[: max(text.rfind(")"), text.rfind("}")) + 1] + "]"
