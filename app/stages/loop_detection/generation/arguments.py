"""The arguments of a call while they come: JSON, in which a model may go round as in any text.

What an agent writes into a file may rightly repeat itself for longer than an answer may (rows of
zeros, empty cells), so only what a model hardly ever means is cut: 2,000 tokens of the same. Most
calls are shorter, and not looked at. Line breaks and tabs stand in JSON as escapes, and are blanks
all the same.
"""

from __future__ import annotations

import re
from typing import Final

from ....settings import GenerationSettings
from .flow import EndlessWhitespace
from .periodic import PeriodicText, Repetition
from .whitespace import WhitespaceRun

LEAST: Final = 8000  # characters that repeat
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_BLANKS = frozenset("nrt")


class ArgumentsWatch:
    """Of one call. Takes its arguments in pieces, however they are cut."""

    __slots__ = ("_due", "_length", "_periodic", "_rules", "_tail", "_unread", "_waiting", "_white")

    def __init__(self, rules: GenerationSettings) -> None:
        self._rules = rules
        self._white = WhitespaceRun(rules.max_trailing_whitespace)
        self._periodic: PeriodicText | None = None  # made when there is enough for it
        self._waiting: list[str] = []
        self._unread: list[str] = []  # what it is to be given then
        self._length = 0
        self._due = min(self._white.due, LEAST)  # the length up to which nothing can be decided
        self._tail = ""  # a backslash whose escape is still to come

    def add(self, piece: str) -> Repetition | EndlessWhitespace | None:
        """The first thing found, once there is one."""
        self._waiting.append(piece)
        self._length += len(piece)
        if self._length < self._due:
            return None
        text = "".join(self._waiting)
        self._waiting.clear()
        found: list[Repetition | EndlessWhitespace] = []
        if (blank := self._white.feed(self._unescaped(text))) is not None:
            found.append(EndlessWhitespace(*blank))
        if (repetition := self._read(text)) is not None:
            found.append(repetition)
        further = LEAST if self._periodic is None else self._periodic.due
        self._due = min(self._white.due, further)
        return min(found, key=lambda one: one.end) if found else None

    def _read(self, text: str) -> Repetition | None:
        if self._periodic is None:
            self._unread.append(text)
            if self._length < LEAST:
                return None
            text = "".join(self._unread)
            self._unread.clear()
            self._periodic = PeriodicText(self._rules, least=LEAST)
        return self._periodic.feed(text)

    def _unescaped(self, text: str) -> str:
        """The text with blanks for escaped ones, and as long."""
        text = self._tail + text
        if "\\" not in text:
            self._tail = ""
            return text
        self._tail = "\\" if (len(text) - len(text.rstrip("\\"))) % 2 else ""
        return _ESCAPE.sub(_blank, text.removesuffix(self._tail))


def _blank(escape: re.Match[str]) -> str:
    return "  " if escape[1] in _BLANKS else "xx"
