"""Sentences that have all been said before, in whatever order: a text that says nothing new.

A model that is stuck need not repeat itself to the letter: "Wait, …", "Hmm, …" and "Actually, …"
come in ever another order, and no lap is like the one before. What tells it from a text that gets
on is that for long no sentence is new. A number that moves makes a new sentence.
"""

from __future__ import annotations

import re
from collections import deque

from ....settings import GenerationSettings
from .lap_kind import Kind, kind_of
from .periodic import DATA_CHARS
from .sentences import has_sentences, without_formulas

# What is said for the fourth time within half a window is nothing new; manuals say the same of many
# things, but further apart. As much of it as data may repeat itself is enough.
_TIMES = 4
_LOOKED_AT = 50  # sentences, the last ones, by which it is told what kind of text it is
_LONGEST = 1000  # a longer sentence is always new
# With what closes a quotation behind it, the first of the blanks, and all others.
_END = re.compile(r"(?:[.?!…][*_)\]\"'’”]?(\s)|[。！？]|\n\n)\s*")
_OVERLAP = 2  # of its characters may have come already, and no end seen


class Restated:
    """Takes a text in pieces, however they are cut, and remembers its sentences by their hash."""

    __slots__ = (
        "_begun",
        "_due",
        "_enough",
        "_length",
        "_nearby",
        "_often",
        "_recent",
        "_rest",
        "_start",
        "_stretch",
        "_times",
    )

    def __init__(self, rules: GenerationSettings) -> None:
        self._times = max(rules.min_laps, _TIMES)
        self._enough = max(rules.min_chars, DATA_CHARS)
        self._nearby = rules.window_chars // 2
        self._recent: deque[tuple[int, int]] = deque()  # where sentences ended, and their hashes
        self._often: dict[int, int] = {}  # how often each of those was said
        self._stretch: list[str] = []  # the sentences since the last new one,
        self._start = 0  # where they begin,
        self._due = self._enough  # and where they may be enough
        self._rest = ""  # of the text: no whole sentence yet
        self._begun = False  # it began longer ago than a sentence may be long
        self._length = 0

    def feed(self, piece: str) -> tuple[int, int] | None:
        """Where the last new sentence ended, and where it had been the last for long enough."""
        text = self._stripped(self._rest + piece)
        self._length += len(piece)
        offset, at = self._length - len(text), 0
        for found in _END.finditer(text, max(len(self._rest) - _OVERLAP, 0)):
            end = found.start() + 1
            if self._is_new(text[at:end], offset + end):
                self._begin(offset + end)
            else:
                self._stretch.append(text[at:end] + (found[1] or ""))
            at = found.end()
            if offset + end >= self._due:
                if self._is_told():
                    return self._start, offset + end
                self._due += offset + end - self._start  # asked again when it is twice as long
                self._stretch.clear()
        self._rest = self._stripped(text[at:])
        if len(self._rest) > _LONGEST + _OVERLAP:  # as long without what may have ended it
            self._rest, self._begun = self._rest[-_OVERLAP:], True
        return None

    def _stripped(self, text: str) -> str:
        """Blanks before a sentence are none of it, however they come."""
        return text if self._begun else text.lstrip()

    def _is_new(self, sentence: str, end: int) -> bool:
        """Whether it hasn't been said often enough yet. It is remembered."""
        if self._begun or len(sentence) > _LONGEST:
            self._begun = False
            return True
        key = hash(" ".join(sentence.split()).casefold())
        self._recent.append((end, key))
        times = self._often[key] = self._often.get(key, 0) + 1
        while self._recent[0][0] < end - self._nearby:
            self._forget(self._recent.popleft()[1])
        return times < self._times

    def _forget(self, key: int) -> None:
        self._often[key] -= 1
        if not self._often[key]:
            del self._often[key]

    def _begin(self, start: int) -> None:
        self._stretch.clear()
        self._start, self._due = start, start + self._enough

    def _is_told(self) -> bool:
        """Whether it is prose: labels, moves and cells come in any order, too."""
        told = "".join(self._stretch[-_LOOKED_AT:])
        return kind_of(told) is Kind.PROSE and any(map(has_sentences, without_formulas(told)))
