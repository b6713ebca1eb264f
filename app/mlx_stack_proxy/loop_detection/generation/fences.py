"""Tells whether a place in a growing text is inside a code fence. Reads the text once, in order."""

from __future__ import annotations

import re

# A fence begins a line. Models also write one behind text: it counts if at most a language follows.
_FENCE = re.compile(r"(?:^[ \t]*+|(?=(?:`{3,}+|~{3,}+)[\w+#.-]*+\n))(`{3,}+|~{3,}+)([^\n]*+)", re.M)

_LINE = 80  # characters after which a fence in an unfinished line is decided


class Fences:
    """Reads the fences of a growing text."""

    __slots__ = ("_at", "_mark", "_turned")

    def __init__(self) -> None:
        self._at = 0  # the length that has been read
        self._mark = ""  # the marks that opened the fence; "": no fence is open
        self._turned = 0  # where a fence last opened or closed

    def is_open(self, text: str, end: int, start: int) -> bool:
        """Whether ``text[start:end]`` lies in one fence. Reads on in the text, up to ``end``."""
        self._read(text, end)
        return bool(self._mark) and self._turned <= start

    def _read(self, text: str, end: int) -> None:
        at = self._at
        unread = max(text.rfind("\n", at, end) + 1, end - _LINE, at)  # the line may go on
        for found in _FENCE.finditer(text, at, end):
            mark, rest = found[1], found[2]
            if found.end() == end and len(rest) < _LINE and (not self._mark or not rest):
                unread = found.start()
                break
            if not self._mark:
                self._mark = "" if mark[0] in rest else mark  # else it is inline code
            elif mark.startswith(self._mark):
                self._mark = ""
            self._turned = found.start()
            unread = max(unread, found.end())
        self._at = unread
