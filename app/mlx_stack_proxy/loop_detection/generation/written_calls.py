"""Calls that a model writes as text, repeated: what the proxy reads as calls is counted as those.

Only a text that goes round is read for them while it comes, and again once it is a quarter longer.
At its end they have been made real calls, and are counted as such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...tool_validation.formats.base import Tools
from ...tool_validation.text_calls import Holdback, rescue_cut
from ...wire.reply import ToolCall
from .calls import Repeats
from .found import RepeatedCall

_GROWTH = 1.25


class WrittenCalls:
    """The text of one choice. ``tools`` gives those that calls are made real calls of, by name."""

    __slots__ = ("_due", "_exempt", "_most", "_pieces", "_tools")

    def __init__(self, most: int, exempt: Sequence[str], tools: Callable[[], Tools]) -> None:
        self._most = most
        self._exempt = exempt
        self._tools = tools
        self._pieces: list[str] = []
        self._due = 0  # the length of text from which on it is read again

    def take(self, piece: str) -> None:
        self._pieces.append(piece)

    def look(self, upto: int, laps: int, *, now: bool) -> RepeatedCall | None:
        """What is found in the first ``upto`` characters, whose end stands there ``laps`` times.

        ``now``: it goes round for long enough to be cut in any case.
        """
        if not now and (laps <= self._most or upto < self._due):
            return None
        text = "".join(self._pieces)
        self._pieces = [text]
        self._due = int(upto * _GROWTH)
        text, tools = text[:upto], self._tools()
        if not any(text.count(name) > self._most for name in tools):
            return None
        repeats = Repeats(self._most, self._exempt)
        found = rescue_cut(self.closed(text), tools).calls
        repeats.kept([ToolCall("", call.name, call.arguments) for call in found])
        return RepeatedCall(repeats.tool) if repeats.tool else None

    def before(self, text: str) -> str:
        """What a text says before its first call."""
        return Holdback(self._tools()).feed(text)

    def closed(self, text: str) -> str:
        """A text that was cut; a list of calls that is still open ends with its last whole one."""
        if not text.lstrip().startswith("[") or rescue_cut(text, self._tools()).calls:
            return text
        return text[: max(text.rfind(")"), text.rfind("}")) + 1] + "]"
