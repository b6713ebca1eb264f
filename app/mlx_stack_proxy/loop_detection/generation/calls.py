"""The same call again and again in one reply: counted by what is called, whatever its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...wire.events import ToolCallDelta
from ...wire.reply import ToolCall
from ..call_keys import canonical

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
