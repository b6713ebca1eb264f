"""The same call again and again in one reply: counted by what is called, whatever its id.

Calls that a model writes as text are counted as the real calls that the proxy reads them as. Only a
text that goes round is read for them while it comes, and again once it is a quarter longer. At its
end they have been made real calls, and are counted as such. What goes round within a call is its
arguments, and no text.
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
        self.tool = ""  # whose call was one too many

    def add(self, key: Key) -> bool:
        """Whether this call is one too many."""
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
    """The ``tool_calls`` of one choice, while their pieces come. One is whole when the next begins.

    Pieces of a call that seemed whole (none is known to send them so) are left out.
    """

    __slots__ = ("_coming", "_repeats", "_seen")

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats
        self._coming: _Coming | None = None
        self._seen: set[int] = set()

    def add(self, delta: ToolCallDelta) -> bool:
        """Whether the call that ends with this is one too many."""
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
    """The text of one choice. ``tools`` gives those that calls are made real calls of, by name.

    ``is_open``: what was found when it was read last stands in calls, not between them.
    """

    __slots__ = ("_due", "_exempt", "_most", "_tools", "is_open")

    def __init__(self, most: int, exempt: Sequence[str], tools: Callable[[], ToolSet]) -> None:
        self._most = most
        self._exempt = exempt
        self._tools = tools
        self._due = 0  # the length of text from which on it is read again
        self.is_open = False

    def look(self, text: str, end: int, laps: int, found: Found | None) -> RepeatedCall | None:
        """What is found in ``text[:end]``, whose end stands there ``laps`` times.

        ``found``: what of it goes round for long enough to be cut as a text.
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
        """What a text says before its first call."""
        return Holdback(self._tools()).feed(text)

    def closed(self, text: str) -> str:
        """A text that was cut; a list of calls that is still open ends with its last whole one."""
        if not text.lstrip().startswith("[") or rescue_cut(text, self._tools()).calls:
            return text
        return text[: max(text.rfind(")"), text.rfind("}")) + 1] + "]"
