"""Calls that a model writes as text, repeated: what the proxy reads as calls is counted as those.

Only a text that goes round is read for them while it comes, and again once it is a quarter longer;
any other at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....core.reply import ToolCall
from ....frozen import frozen
from ....tool_calls.formats.base import Tools
from ....tool_calls.text_calls import Holdback, rescue, rescue_cut
from ....unique import call_id
from .calls import Repeats
from .found import RepeatedCall

_GROWTH = 1.25


@frozen
class Shortened:
    """What is kept of a text with too many calls: the first ones, made real, and what is prose."""

    text: str
    calls: tuple[ToolCall, ...]
    formats: tuple[str, ...]
    tool: str


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
        found = self.shortened(text[:upto], cut=True)
        return RepeatedCall(found.tool) if found is not None else None

    def shortened(self, text: str, *, cut: bool) -> Shortened | None:
        """``text`` without the calls that are too many; None: there are none.

        ``cut``: more was to come, so the last call may be half of one.
        """
        tools = self._tools()
        if not any(text.count(name) > self._most for name in tools):
            return None
        found = (rescue_cut if cut else rescue)(text, tools)
        if cut and not found.calls and text.lstrip().startswith("["):  # a list that is still open
            found = rescue(text[: max(text.rfind(")"), text.rfind("}")) + 1] + "]", tools)
        repeats = Repeats(self._most, self._exempt)
        kept = repeats.kept(ToolCall(call_id(), c.name, c.arguments) for c in found.calls)
        if not repeats.tool:
            return None
        formats = tuple(call.format for call in found.calls[: len(kept)])
        # Behind the first call of a cut text stands at best half a call.
        content = Holdback(tools).feed(text) if cut else found.content
        return Shortened(content, tuple(kept), formats, repeats.tool)
