"""Where a text is inside a code fence, read once and in order."""

from __future__ import annotations

import re

_MARKS = re.compile(r"```|~~~")
_FENCE = re.compile(r"`{3,}|~{3,}")
_INFO = re.compile(r"[\w+#.-]*")
# Characters of a line that are looked at before and behind a fence; its end, up to a block later.
_LINE, _BLOCK = 80, 64


class Fences:
    """Reads the fences of a growing text; in how many steps makes no difference.

    A fence opens at the start of a line, or, as models write it, behind a text on its line if
    nothing but a language follows. It is closed at the start of a line, also where text follows on
    the same line, but not by what can only open another one (```` ```python ````).
    """

    __slots__ = ("_at", "_mark", "_turned")

    def __init__(self) -> None:
        self._at = 0  # read so far; an index into the whole text
        self._mark = ""  # the fence that is open
        self._turned = 0  # where the last one opened or closed

    def holds(self, start: int) -> bool:
        """Whether the text read lies in a fence from ``start`` to its end."""
        return bool(self._mark) and self._turned <= start

    def read(self, text: str, offset: int, upto: int) -> None:
        """Read on up to ``upto``; ``text`` begins at ``offset`` of the whole text."""
        at, end = max(self._at - offset, 0), upto - offset
        while True:
            hit = _MARKS.search(text, at, end)
            if hit is None:
                # Two marks at the end may be the beginning of a fence.
                self._at = max(self._at, upto - 2)
                return
            start = hit.start()
            seen = start + _LINE + -(start + _LINE + offset) % _BLOCK
            line_end = text.find("\n", start, min(end, seen))
            if line_end < 0 and end < seen:
                self._at = start + offset  # the rest of its line says what it is
                return
            rest = text[start : line_end if line_end >= 0 else start + _LINE]
            mark = _FENCE.match(rest)
            assert mark is not None
            word = rest[mark.end() :].strip()
            alone = line_end >= 0 and _INFO.fullmatch(word) is not None
            if self._turns(mark.group(), word, alone, _starts_line(text, start, offset)):
                self._mark = "" if self._mark else mark.group()
                self._turned = start + offset
            at = start + max(mark.end(), 3)
            self._at = at + offset

    def _turns(self, mark: str, info: str, alone: bool, starts_line: bool) -> bool:
        """Whether a fence opens or closes here. ``alone``: nothing but a language follows it."""
        if not self._mark:
            return alone or (starts_line and mark[0] not in info)
        can_close = mark.startswith(self._mark) and not (alone and info)
        return can_close and (starts_line or alone)


def _starts_line(text: str, start: int, offset: int) -> bool:
    _, newline, line = text[max(start - _LINE, 0) : start].rpartition("\n")
    return not line.strip() and bool(newline or start + offset < _LINE)
