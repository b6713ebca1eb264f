"""Counts calls that a model writes as text and that nothing turns into real calls.

Two kinds begin with a mark: a line ``⏺ Name: description`` or ``⏺ Name(arguments)``, and, where no
tools are offered, a call in a format of ``formats/table.py`` that has a mark. Lines with a
description are equal if their first 50 characters are; other calls are compared completely. A call
is surplus if it begins one more lap than allowed of equal calls with equal text between them, so a
transcript that runs the same test after each edit stays whole.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple

from ...tool_validation.formats import context
from ...tool_validation.formats.base import Source, Where
from ...tool_validation.formats.table import ROWS
from ...tool_validation.tools import NO_TOOLS
from ...wire.growing import GrowingText
from .limits import Fences

BULLET: Final = "⏺"
ALIKE: Final = 50  # compared characters of a line with a description
MAX_CALLS: Final = 8  # in one lap
HEADER: Final = 200  # characters from a call's first mark to its last one
MAX_MARKS: Final = 500  # per text; the rest of it is not searched for calls
_LINE = re.compile(
    rf"{BULLET}\ufe0f?[ \t]*(?P<name>[^\s:(][^\n:(]{{0,79}}?)[ \t]*(?:(?P<described>:[ \t]+\S)|\()"
)


class _Marked(NamedTuple):
    """A marked call. Another one is equal if its text begins with ``head``."""

    name: str
    head: str
    whole_line: bool  # the line must end after the head
    rest: str = ""  # the text up to the next call, without blanks


class MarkedCalls:
    """Finds the first surplus call in one choice's growing text.

    ``limit``: equal calls that are allowed. ``formats``: whether formats' marks count, too.
    """

    def __init__(self, limit: int, exempt: Sequence[str], *, formats: bool) -> None:
        self._limit = limit
        self._exempt = exempt
        self._marks = _marks(formats)
        self._begun = False  # whether a piece of the text may hold a mark
        self._fences = Fences()
        self._left = MAX_MARKS  # marks that will still be read
        self._pos = 0  # marks before this index are known
        self._open = -1  # the index of the last mark; -1: there is none
        self._calls: deque[_Marked] = deque(maxlen=(MAX_CALLS + 1) * limit)
        self._last: _Marked | None = None  # the last call, whose rest is still growing
        self._last_end = 0  # the index after it
        self._surplus: list[_Marked] = []  # calls that the one at the last mark may equal
        self._matched = 0  # its characters that match theirs so far
        self.held = 0  # trailing characters of the text that may begin a surplus call
        self.cut_at = -1  # the index of the first surplus call; -1: none was found
        self.tool = ""  # its name

    def add(self, piece: str, written: GrowingText) -> bool:
        """Add a piece, the last of ``written``. Return whether a surplus call was found."""
        self._begun = self._begun or self._marks.first.search(piece) is not None
        return self.cut_at >= 0 or (self._begun and self._look(written.text(), final=False))

    def finish(self, text: str) -> bool:
        """Treat the text as complete. Return whether it ends in a surplus call."""
        return self.cut_at >= 0 or (self._begun and self._look(text, final=True))

    def _look(self, text: str, *, final: bool) -> bool:
        marks = self._marks
        while True:
            if self._surplus:
                found = self._compare(text, final)
                if found is None:
                    self.held = len(text) - self._open
                    return False
                if found:
                    return True
            match = marks.whole.search(text, self._pos) if self._left else None
            if match is None:
                self._pos = max(self._pos, len(text) - marks.longest + 1)
                self.held = self._may_begin(text)
                return False
            start, self._pos = match.start(), match.end()
            self._left -= 1
            if not (self._is_header(text, start) or self._is_shown(text, start)):
                self._begin(text, start)

    def _is_header(self, text: str, start: int) -> bool:
        """Whether ``start`` is inside the call at the last mark, as ``<function=`` may be."""
        if self._open < 0 or start - self._open > HEADER or text[self._open] == BULLET:
            return False
        return self._read(text, start) is None

    def _is_shown(self, text: str, start: int) -> bool:
        """Whether the mark at ``start`` is only quoted: in code, in quotes, a ⏺ within a line."""
        line = text[max(start - ALIKE, 0) : start].rpartition("\n")
        if text[start] == BULLET and (line[2].strip() or not (line[1] or start < ALIKE)):
            return True
        if self._fences.is_open(text, start, start):
            return True
        return context.closer_at(text, start, final=True) is not None

    def _begin(self, text: str, start: int) -> None:
        """Record a mark, which ends the call at the previous mark, if any."""
        if (read := self._read(text, start)) is not None:
            self._calls.extend(self._ended(text, self._open))
            self._last, self._last_end = read
        self._open, self._matched = start, 0
        calls = [*self._calls, *self._ended(text, start)]
        self._surplus = []  # the calls that would be surplus if repeated here
        for size in range(1, min(len(calls) // self._limit, MAX_CALLS) + 1):
            laps = calls[-size * self._limit :]
            if laps[size:] == laps[:-size] and laps[0].name not in self._exempt:
                self._surplus.append(laps[0])

    def _ended(self, text: str, end: int) -> list[_Marked]:
        """Return the last call, if any, with the text between it and ``end``."""
        if self._last is None:
            return []
        return [self._last._replace(rest="".join(text[self._last_end : end].split()))]

    def _read(self, text: str, end: int) -> tuple[_Marked, int] | None:
        """Return the call at the last mark, read up to ``end``, and the index after it, or None."""
        start = self._open
        if start < 0:
            return None
        if text[start] == BULLET:
            line_end = text.find("\n", start, end)
            line_end = end if line_end < 0 else line_end
            match = _LINE.match(text, start, line_end)
            if match is None:
                return None
            line = text[start:line_end].rstrip()
            alike = match["described"] is not None and len(line) >= ALIKE
            return _Marked(match["name"], line[:ALIKE] if alike else line, not alike), line_end
        source, mark = Source(text[start:end], NO_TOOLS), self._marks.whole.match(text, start)
        for row in ROWS[mark[0]] if mark is not None else ():
            with suppress(Exception):  # a reader may raise anything: no call in this format
                block = row.read(source, 0) if row.where is Where.MARK else None
                if block is not None and block.calls:
                    head = source.text[: block.end]
                    return _Marked(block.calls[0].name, head, False), start + block.end
        return None

    def _compare(self, text: str, final: bool) -> bool | None:
        """Whether the call at the last mark is surplus; None: more text is needed."""
        start, matched = self._open, self._matched
        size = self._matched = len(text) - start
        undecided = []
        for call in self._surplus:
            compared = text[start + matched : start + min(size, len(call.head))]
            if call.head[matched:size] != compared:
                continue
            end = start + len(call.head)
            newline = text.find("\n", end) if call.whole_line else end
            if text[end : newline if newline >= 0 else len(text)].strip():
                continue
            if end <= len(text) and (newline >= 0 or final):
                self.cut_at, self.tool = start, call.name
                return True
            undecided.append(call)
        self._surplus = [] if final else undecided
        return None if self._surplus else False

    def _may_begin(self, text: str) -> int:
        """Return how many trailing characters may be a part of a surplus call's mark."""
        marks, last = len(self._calls) + (self._last is not None), self._open
        if not self._left or marks + (last >= 0) < self._limit:
            return 0
        heads = [call.head for call in (*self._calls, self._last) if call is not None]
        heads.append(text[last : last + self._marks.longest])
        first = self._marks.first.finditer(text, max(len(text) - self._marks.longest, last) + 1)
        starts = [match.start() for match in first]
        begun = (at for at in starts if any(head.startswith(text[at:]) for head in heads))
        return len(text) - next(begun, len(text))


class MarkHold:
    """Holds text back while it may be a surplus call, so that none of it is sent."""

    def __init__(self) -> None:
        self.marked: MarkedCalls | None = None  # of the (only) choice, once it has a mark
        self._held = ""

    def feed(self, delta: str) -> str:
        """Add the next delta, which ``MarkedCalls`` has seen; return the text that may flow."""
        marked = self.marked
        if marked is None or not (marked.held or self._held):
            return delta
        text = self._held + delta
        end = max(len(text) - marked.held, 0)
        self._held = text[end:]
        return text[:end]


class _Marks(NamedTuple):
    """The marks of calls: ``first`` finds where one may begin, ``whole`` a complete mark."""

    first: re.Pattern[str]
    whole: re.Pattern[str]
    longest: int


@lru_cache(maxsize=2)
def _marks(formats: bool) -> _Marks:
    openers = {BULLET}
    for opener, rows in ROWS.items() if formats else ():
        if not opener[0].isalpha() and any(row.where is Where.MARK for row in rows):
            openers.add(opener)
    words = sorted(openers, key=len, reverse=True)
    first = "".join({re.escape(word[0]) for word in words})
    whole = "|".join(map(re.escape, words))
    return _Marks(re.compile(f"[{first}]"), re.compile(whole), len(words[0]))


def first_mark(*, formats: bool) -> re.Pattern[str]:
    """Return the pattern of places where a mark may begin."""
    return _marks(formats).first
