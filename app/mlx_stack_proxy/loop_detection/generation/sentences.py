"""Sentences that were all said before, to the letter or but for one word: a text with no news.

A model that is stuck need not repeat itself to the letter: "Wait, …" and "Hmm, …" come in ever
another order, or one word of a sentence is another each time. What tells it from a text that gets
on is that for long no sentence is new. A sentence ends with a mark and a blank. A row of a table, a
line of code and an item of a list without a full stop end with the line: they are no sentences, and
what is new among them is news all the same.
"""

from __future__ import annotations

import operator
import re
from collections import deque
from zlib import crc32

from ...settings import GenerationSettings
from .found import Found
from .limits import LEAST_WORDS, REMEMBERED, REMEMBERED_WORDS, SENTENCES, is_signs, said

_LONGEST = 1000  # characters; a longer sentence is always new
_END = re.compile(r"[.?!…][\"'”’*_]{0,3}+\s|[,;:] |[。！？，；]|\n")
_LONGEST_END = 5  # characters
_COMMAS = frozenset(",;:")
_NUMBER = re.compile(r"\(?+(?:\d++|[A-Za-z])[.):](?:\s++|\Z)")  # of an item in a list


class Sentences:
    """Remembers the last sentences of a text by their hash."""

    __slots__ = (
        "_late",
        "_looked",
        "_marker",
        "_open",
        "_recent",
        "_rules",
        "_said",
        "_start",
        "_upto",
        "_words",
    )

    def __init__(self, rules: GenerationSettings, late: int) -> None:
        self._rules = rules
        self._late = late
        self._recent: deque[int] = deque(maxlen=REMEMBERED)  # hashes
        self._words: deque[bytes] = deque(maxlen=REMEMBERED_WORDS)  # a byte of each word's hash
        self._marker = ""  # what the line began with: "|" of a table, "1" of a numbered item
        self._upto = 0  # what of the text was read as whole sentences,
        self._looked = 0  # what of it was looked at for ends,
        self._start = 0  # where the last new sentence ended,
        self._said = 0  # the characters of sentences since,
        self._open = 0  # and of those what belongs to a sentence that is still open

    def look(self, text: str, offset: int, end: int) -> Found | None:
        """Read on up to ``text[:end]``, which begins at ``offset`` of the whole text."""
        at = max(self._upto - offset, 0)
        for found in _END.finditer(text, max(at, self._looked - offset), end):
            unit, mark = text[at : found.end()].strip(), found[0]
            # "Well, …" and "Attempt 12: …" say nothing by themselves.
            if mark[0] in _COMMAS and unit.count(" ") < LEAST_WORDS - 1:
                continue
            at = found.end()
            if unit:
                self._read(unit, mark, offset + at)
            if mark[-1] == "\n":
                self._marker = ""
        if end - at > _LONGEST:
            at = end
            self._begin(offset + at)
        self._upto, self._looked = offset + at, offset + end - _LONGEST_END
        if self._said < said(self._rules, late=self._upto > self._late):
            return None
        return Found("sentences", self._start, self._upto)

    def _read(self, unit: str, mark: str, end: int) -> None:
        number = _NUMBER.match(unit)
        if not self._marker:
            self._marker = "|" if unit[0] == "|" else "1" if number else " "
        unit = unit[number.end() :] if number else unit
        if not unit:
            return
        words = unit.casefold().split() if mark[-1].isspace() else list(unit)
        is_sentence = mark != "\n" and self._marker != "|" and len(words) >= LEAST_WORDS
        known = self._is_known(words)
        is_told = (is_sentence or self._marker == "1") and not is_signs(" ".join(words))
        if not known and not (is_told and is_sentence and self._is_alike(words)):
            self._begin(end)
        elif is_told:
            self._said += len(unit) + 1
            self._open = self._open + len(unit) + 1 if mark[0] in _COMMAS else 0
        elif mark == "\n":
            self._said -= self._open  # clauses of a line that is no sentence
            self._open = 0

    def _is_known(self, words: list[str]) -> bool:
        key = hash(" ".join(words))
        self._recent.append(key)
        return self._recent.count(key) >= SENTENCES.laps

    def _is_alike(self, sentence: list[str]) -> bool:
        """Whether so many of the last sentences are this one but for one word."""
        words = bytes([crc32(word.encode("utf-8", "surrogatepass")) & 255 for word in sentence])
        half = len(words) // 2
        alike = 0
        for old in self._words:
            is_near = old[:half] == words[:half] or old[half:] == words[half:]
            if len(old) == len(words) and is_near:
                alike += sum(map(operator.ne, old, words)) <= 1
        self._words.append(words)
        return alike >= SENTENCES.laps - 1

    def _begin(self, start: int) -> None:
        self._start, self._said, self._open = start, 0, 0
