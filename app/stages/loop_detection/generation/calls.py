"""The same call again and again in one reply: counted by what is called, whatever its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ....core.call_keys import canonical
from ....core.events import ToolCallDelta
from ....core.reply import ToolCall

Key = tuple[str, str]  # name, canonical arguments
# A spelling longer than the shortest by more than this is seen only once the call has ended.
_SLACK = 200


class Repeats:
    """Counts calls; the one after ``most`` equal ones is one too many, except of exempt tools."""

    __slots__ = ("_counts", "_exempt", "_full", "_most", "tool")

    def __init__(self, most: int, exempt: Sequence[str]) -> None:
        self._most = most
        self._exempt = frozenset(exempt)
        self._counts: Counter[Key] = Counter()
        self._full: dict[str, set[int]] = {}  # name → sizes of the arguments of full calls
        self.tool = ""  # whose call was one too many

    def add(self, key: Key) -> bool:
        """Whether this call is one too many."""
        if key[0] in self._exempt:
            return False
        self._counts[key] += 1
        if self._counts[key] == self._most:
            self._full.setdefault(key[0], set()).add(len(key[1]))
        if self._counts[key] <= self._most:
            return False
        self.tool = self.tool or key[0]
        return True

    def is_full(self, key: Key) -> bool:
        """Whether one more such call would be too many."""
        return self._counts[key] >= self._most

    def nearly(self, name: str, size: int) -> bool:
        """Whether a call of this name and size of arguments may be one too many.

        Canonical JSON is the shortest spelling, so whoever asks while a call comes need parse it
        only over the last few characters that it can have.
        """
        return any(0 <= size - full <= _SLACK for full in self._full.get(name, ()))

    def kept(self, calls: Iterable[ToolCall]) -> list[ToolCall]:
        """The calls without those that are too many."""
        return [call for call in calls if not self.add(key_of(call))]


def key_of(call: ToolCall) -> Key:
    """What equal calls share."""
    return call.name, canonical(call.arguments)


@dataclass(slots=True)
class _Coming:
    index: int
    name: str = ""
    size: int = 0
    pieces: list[str] = field(default_factory=list)


class NativeCalls:
    """The ``tool_calls`` of one choice, while their pieces come.

    A call is whole when the next begins; one that repeats, as soon as its arguments are the same
    JSON object.
    """

    __slots__ = ("_coming", "_repeats", "_seen")

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats
        self._coming: _Coming | None = None
        self._seen: set[int] = set()

    @property
    def unfinished(self) -> bool:
        """Whether the call that came last may have been cut."""
        return self._coming is not None

    def add(self, delta: ToolCallDelta) -> bool:
        """Whether a call is one too many now."""
        coming = self._coming
        piece = delta.arguments
        if coming is None or coming.index != delta.index:
            ended = self._end()
            # Pieces of a call that seemed whole (none is known to send them so) are left out.
            coming = self._coming = None if delta.index in self._seen else _Coming(delta.index)
            if ended or coming is None:
                return ended
            self._seen.add(delta.index)
        if not coming.name:
            coming.name = delta.name
        coming.pieces.append(piece)
        coming.size += len(piece)
        if "}" not in piece or not piece.rstrip().endswith("}"):
            return False
        if not self._repeats.nearly(coming.name, coming.size):
            return False
        key = (coming.name, canonical("".join(coming.pieces)))
        return self._repeats.is_full(key) and self._end()

    def _end(self) -> bool:
        coming, self._coming = self._coming, None
        if coming is None:
            return False
        return self._repeats.add((coming.name, canonical("".join(coming.pieces))))
