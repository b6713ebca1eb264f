"""Where a text is inside a code fence, read once and in order."""

from __future__ import annotations

import re

# At the start of a line, or, as models write it, behind a text if at most a language follows.
_FENCE = re.compile(r"(?:^[ \t]*+|(?=(?:`{3,}+|~{3,}+)[\w+#.-]*+\n))(`{3,}+|~{3,}+)([^\n]*+)", re.M)

_LINE = 80  # characters of a line that say whether a fence begins there


class Fences:
    """Reads the fences of a growing text."""

    __slots__ = ("_at", "_mark", "_turned")

    def __init__(self) -> None:
        self._at = 0  # read so far
        self._mark = ""  # the fence that is open
        self._turned = 0  # where the last one opened or closed

    def is_open(self, text: str, end: int, start: int) -> bool:
        """Whether ``text[start:end]`` lies in one fence; it is read on up to ``end``."""
        self._read(text, end)
        return bool(self._mark) and self._turned <= start

    def _read(self, text: str, end: int) -> None:
        at = self._at
        unread = max(text.rfind("\n", at, end) + 1, end - _LINE, at)  # its line may go on
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
