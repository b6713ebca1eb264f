"""Tells whether a place in a growing text is inside a code fence. Reads the text once, in order."""

from __future__ import annotations

import re

# A fence begins a line. Models also write one after text: it counts if at most a language follows.
_FENCE = re.compile(r"(?:^[ \t]*+|(?=(?:`{3,}+|~{3,}+)[\w+#.-]*+\n))(`{3,}+|~{3,}+)([^\n]*+)", re.M)

_LINE = 80  # characters after which a fence in an unfinished line is decided


class Fences:
    """Reads the fences of a growing text."""

    __slots__ = ("_mark", "_read_to", "_toggled_at")

    def __init__(self) -> None:
        self._read_to = 0  # the length that has been read
        self._mark = ""  # the marks that opened the fence; "": no fence is open
        self._toggled_at = 0  # where a fence last opened or closed

    def is_open(self, text: str, end: int, start: int) -> bool:
        """Whether ``text[start:end]`` lies in one fence. Reads on in the text, up to ``end``."""
        self._read(text, end)
        return bool(self._mark) and self._toggled_at <= start

    def _read(self, text: str, end: int) -> None:
        start = self._read_to
        unread = max(text.rfind("\n", start, end) + 1, end - _LINE, start)  # the line may go on
        for fence in _FENCE.finditer(text, start, end):
            mark, info = fence[1], fence[2]
            if fence.end() == end and len(info) < _LINE and (not self._mark or not info):
                unread = fence.start()
                break
            if not self._mark:
                self._mark = "" if mark[0] in info else mark  # else it is inline code
            elif mark.startswith(self._mark):
                self._mark = ""
            self._toggled_at = fence.start()
            unread = max(unread, fence.end())
        self._read_to = unread
