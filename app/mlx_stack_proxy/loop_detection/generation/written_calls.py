"""Calls that a model writes as text, repeated: what the proxy reads as calls is counted as those.

Only a text that goes round is read for them while it comes, and again once it is a quarter longer.
At its end they have been made real calls, and are counted as such. What goes round within a call is
its arguments, and no text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...tool_validation.formats.base import Tools
from ...tool_validation.text_calls import Holdback, rescue_cut
from ...wire.reply import ToolCall
from .calls import Repeats
from .found import Found, RepeatedCall

_GROWTH = 1.25


class WrittenCalls:
    """The text of one choice. ``tools`` gives those that calls are made real calls of, by name.

    ``is_open``: what was found when it was read last stands in calls, not between them.
    """

    __slots__ = ("_due", "_exempt", "_most", "_pieces", "_tools", "is_open")

    def __init__(self, most: int, exempt: Sequence[str], tools: Callable[[], Tools]) -> None:
        self._most = most
        self._exempt = exempt
        self._tools = tools
        self._pieces: list[str] = []
        self._due = 0  # the length of text from which on it is read again
        self.is_open = False

    def take(self, piece: str) -> None:
        self._pieces.append(piece)

    def look(self, upto: int, laps: int, found: Found | None) -> RepeatedCall | None:
        """What is found in the first ``upto`` characters, whose end stands there ``laps`` times.

        ``found``: what of it goes round for long enough to be cut as a text.
        """
        if upto < self._due and (self.is_open or found is None):
            return None
        if found is None and laps <= self._most:
            return None
        text = "".join(self._pieces)
        self._pieces = [text]
        self._due = int(upto * _GROWTH)
        text, tools = text[:upto], self._tools()
        least = self._most if found is None else 0
        if not any(text.count(name) > least for name in tools):
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
