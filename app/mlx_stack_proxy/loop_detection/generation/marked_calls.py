"""Counts calls that a model writes as text and that nobody turns into real calls.

Two kinds begin with a mark: a line ``⏺ Name: description`` or ``⏺ Name(arguments)``, and, where no
tools are offered, a call in a format of ``formats/table.py`` that has a mark. Lines with a
description are equal if their first 50 characters are; all else is compared whole. A call is
surplus if it begins one more lap than allowed of equal calls with equal text between them, so a
transcript that runs the same test after each edit stays whole.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ...frozen import frozen
from ...tool_validation.formats import context
from ...tool_validation.formats.base import Block, Format, Source, Where
from ...tool_validation.formats.table import ROWS
from ...tool_validation.tools import ToolSet
from ...wire.growing import Growing
from .limits import Fences

BULLET: Final = "⏺"
ALIKE: Final = 50  # characters of a line with a description that are compared
MOST_CALLS: Final = 8  # calls of one lap
HEADER: Final = 200  # characters from a call's first mark to its last one
MAX_MARKS: Final = 500  # of one text; the rest of it is not read for calls
_LINE = re.compile(
    rf"{BULLET}\ufe0f?[ \t]*(?P<name>[^\s:(][^\n:(]{{0,79}}?)[ \t]*(?:(?P<described>:[ \t]+\S)|\()"
)
_NO_TOOLS: Final = ToolSet({})


@frozen
class _Marked:
    """A marked call. Another one is equal if its text begins with ``head``."""

    name: str
    head: str
    whole_line: bool  # after the head, the line must end
    rest: str = ""  # the text after it, up to the next one, without blanks

    def followed_by(self, rest: str) -> _Marked:
        return _Marked(self.name, self.head, self.whole_line, "".join(rest.split()))


class MarkedCalls:
    """Finds the first surplus call in one choice's text, which comes in pieces.

    ``limit``: equal calls that are allowed. ``formats``: whether formats' marks count, too.
    """

    def __init__(self, limit: int, exempt: Sequence[str], *, formats: bool) -> None:
        self._limit = limit
        self._exempt = exempt
        self._marks = _marks(formats)
        self._text = ""  # the whole text, only while it is looked at
        self._begun = False  # whether a piece of it may hold a mark
        self._fences = Fences()
        self._left = MAX_MARKS  # marks that are still read
        self._pos = 0  # marks before this index are known
        self._open = -1  # the index of the last mark; -1: there is none
        self._calls: deque[_Marked] = deque(maxlen=(MOST_CALLS + 1) * limit)
        self._last: _Marked | None = None  # the last call, whose rest still grows
        self._last_end = 0  # the index after that call
        self._surplus: list[_Marked] = []  # calls to which the one at the last mark may be equal
        self._matched = 0  # characters of it that are equal to theirs
        self.held = 0  # the text's last characters, which may begin a surplus call
        self.cut_at = -1  # the index of the first surplus call; -1: none was found
        self.tool = ""  # its name

    def add(self, piece: str, written: Growing) -> bool:
        """Take in a piece, the last of what is written. Return whether a surplus call was found."""
        if self.cut_at >= 0:
            return True
        if not self._begun:
            if self._marks.first.search(piece) is None:
                return False
            self._begun = True
        return self._look(written.text(), final=False)

    def finish(self, text: str) -> bool:
        """Take the text as complete. Return whether it ends in a surplus call."""
        return self.cut_at >= 0 or (self._begun and self._look(text, final=True))

    def _look(self, text: str, *, final: bool) -> bool:
        self._text = text
        found = self._scan(final=final)
        self._text = ""
        return found

    def _scan(self, *, final: bool) -> bool:
        text, marks = self._text, self._marks
        while True:
            if self._surplus:
                found = self._compare(final)
                if found is None:
                    self.held = len(text) - self._open
                    return False
                if found:
                    return True
            match = marks.whole.search(text, self._pos) if self._left else None
            if match is None:
                self._pos = max(self._pos, len(text) - marks.longest + 1)
                self.held = self._may_begin()
                return False
            start, self._pos = match.start(), match.end()
            self._left -= 1
            if not (self._is_header(start) or self._is_shown(start)):
                self._begin(start)

    def _is_header(self, start: int) -> bool:
        """Whether ``start`` is inside the call at the last mark, as ``<function=`` may be."""
        if self._open < 0 or start - self._open > HEADER or self._text[self._open] == BULLET:
            return False
        return self._read(start) is None

    def _is_shown(self, start: int) -> bool:
        """Whether the mark at ``start`` is only shown: in code, in quotes, a ⏺ within a line."""
        text = self._text
        line = text[max(start - ALIKE, 0) : start].rpartition("\n")
        if text[start] == BULLET and (line[2].strip() or not (line[1] or start < ALIKE)):
            return True
        if self._fences.is_open(text, start, start):
            return True
        return context.closer_at(text, start, final=True) is not None

    def _begin(self, start: int) -> None:
        """Note a mark: it ends the call at the mark before, if one is there."""
        if (read := self._read(start)) is not None:
            if self._last is not None:
                self._calls.append(self._last.followed_by(self._text[self._last_end : self._open]))
            self._last, self._last_end = read
        self._open, self._matched = start, 0
        self._surplus = self._surplus_at(start)

    def _read(self, end: int) -> tuple[_Marked, int] | None:
        """Read the call at the last mark, up to ``end``, and the index after it; None if none."""
        text, start = self._text, self._open
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
            head = line[:ALIKE] if alike else line
            return _Marked(match["name"], head, whole_line=not alike), line_end
        source = Source(text[start:end], _NO_TOOLS)
        for row in ROWS[self._marks.whole.match(text, start)[0]]:  # type: ignore[index]
            block = _block(row, source)
            if block is not None and block.calls:
                head = source.text[: block.end]
                return _Marked(block.calls[0].name, head, whole_line=False), start + block.end
        return None

    def _surplus_at(self, start: int) -> list[_Marked]:
        """Return the calls that would be surplus if they came again at ``start``."""
        if self._last is None or len(self._calls) + 1 < self._limit:
            return []
        calls = [*self._calls, self._last.followed_by(self._text[self._last_end : start])]
        surplus = []
        for size in range(1, min(len(calls) // self._limit, MOST_CALLS) + 1):
            laps = calls[-size * self._limit :]
            if laps[size:] == laps[:-size] and laps[0].name not in self._exempt:
                surplus.append(laps[0])
        return surplus

    def _compare(self, final: bool) -> bool | None:
        """Whether the call at the last mark is surplus; None: more text must come first."""
        text, start, matched = self._text, self._open, self._matched
        size = len(text) - start
        self._surplus = [
            call
            for call in self._surplus
            if call.head[matched:size] == text[start + matched : start + min(size, len(call.head))]
        ]
        self._matched = size
        undecided = []
        for call in self._surplus:
            end = start + len(call.head)
            newline = text.find("\n", end) if call.whole_line else end
            line_end = newline if newline >= 0 else len(text)
            if text[end:line_end].strip():
                continue
            if end <= len(text) and (newline >= 0 or final):
                self.cut_at, self.tool = start, call.name
                return True
            undecided.append(call)
        self._surplus = [] if final else undecided
        return None if self._surplus else False

    def _may_begin(self) -> int:
        """Return how many of the text's last characters may be half the mark of a surplus call."""
        if (
            not self._left
            or len(self._calls) + (self._last is not None) + (self._open >= 0) < self._limit
        ):
            return 0
        text = self._text
        first = self._marks.first.finditer(
            text, max(len(text) - self._marks.longest, self._open) + 1
        )
        heads = [call.head for call in (*self._calls, self._last) if call is not None]
        heads.append(text[self._open : self._open + self._marks.longest])
        for match in first:
            if any(head.startswith(text[match.start() :]) for head in heads):
                return len(text) - match.start()
        return 0


class MarkHold:
    """Holds text back while it may be a surplus call, so that none of it is sent."""

    def __init__(self) -> None:
        self.marked: MarkedCalls | None = None  # of the (only) choice, once it has text
        self._held = ""

    def feed(self, delta: str) -> str:
        """Take the next delta, which ``MarkedCalls`` has seen; return the text that may flow."""
        marked = self.marked
        if marked is None or not (marked.held or self._held):
            return delta
        text = self._held + delta
        end = max(len(text) - marked.held, 0)
        self._held = text[end:]
        return text[:end]


@frozen
class _Marks:
    """What marks a call: ``first`` finds where one may begin, ``whole`` a whole mark."""

    first: re.Pattern[str]
    whole: re.Pattern[str]
    longest: int


def _block(row: Format, source: Source) -> Block | None:
    try:
        return row.read(source, 0) if row.where is Where.MARK else None
    except Exception:  # a reader may raise anything: this format reads no call
        return None


@lru_cache(maxsize=2)
def _marks(formats: bool) -> _Marks:
    openers = {BULLET}
    if formats:
        openers |= {
            opener
            for opener, rows in ROWS.items()
            if not opener[0].isalpha() and any(row.where is Where.MARK for row in rows)
        }
    words = sorted(openers, key=len, reverse=True)
    first = "".join({re.escape(word[0]) for word in words})
    return _Marks(
        re.compile(f"[{first}]"), re.compile("|".join(map(re.escape, words))), len(words[0])
    )
