"""The limits of repetition in a reply, one row for each place, and data that the rules share.

A repetition is too long once it reaches both the row's ``laps`` and its ``characters``, or ``most``
characters in three laps. Prose has the settings ``min_laps`` and ``min_chars``. Symbols and code
may repeat longer, and a file that a call writes longer still. Beyond the tool-call limit the limits
are stricter.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

from ...settings import GenerationSettings

Place = Literal["text", "word", "line", "values", "signs", "code", "arguments"]
Rule = Literal["period", "phrase", "sentences", "reasoning"]
Kind = Literal["text", "reasoning", "arguments"]
# A fence begins a line. Models also append one to text: it counts if at most a language follows.
_FENCE = re.compile(r"(?:^[ \t]*+|(?=(?:`{3,}+|~{3,}+)[\w+#.-]*+\n))(`{3,}+|~{3,}+)([^\n]*+)", re.M)
_LINE = 80  # characters after which a fence in an unfinished line is decided


class Fences:
    """Tells whether a position in a growing text is inside a code fence. Reads the text once."""

    __slots__ = ("_mark", "_read_to", "_toggled_at")

    def __init__(self) -> None:
        self._read_to = 0  # the length that has been read
        self._mark = ""  # the marks that opened the fence; "": no fence is open
        self._toggled_at = 0  # where a fence last opened or closed

    def is_open(self, text: str, end: int, start: int) -> bool:
        """Whether ``text[start:end]`` is in one fence. Reads the text on, up to ``end``."""
        self._read(text, end)
        return bool(self._mark) and self._toggled_at <= start

    def _read(self, text: str, end: int) -> None:
        start = self._read_to
        unread = max(text.rfind("\n", start, end) + 1, end - _LINE, start)  # the line may continue
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


class RuleContext(Struct, frozen=True):
    """The settings and the state that all rules share for one text."""

    rules: GenerationSettings
    kind: Kind
    late: int  # the tool-call limit in characters
    fences: Fences


class Threshold(Struct, frozen=True):
    """The smallest repetition that is too long."""

    laps: int
    characters: int  # in all laps together
    most: int = sys.maxsize  # characters that suffice with fewer laps, if there are three


class Excess(Struct, frozen=True):
    """A finding: ``text[start:end]`` is excessive."""

    rule: Rule | Literal["calls"]  # "calls": a surplus call
    start: int
    end: int
    lap: str = ""  # the last lap; "": nothing repeats

    @property
    def laps(self) -> int:
        """The number of laps; for a finding without laps, of characters."""
        return (self.end - self.start) // max(len(self.lap), 1)


MIN_LAPS: Final = 3
# The settings' limits apply in each row, too.
TABLE: Final[dict[Place, Threshold]] = {
    "text": Threshold(0, 0),
    "word": Threshold(80, 240, most=440),  # one word alone
    "values": Threshold(80, 240, most=2000),  # one word and commas: NULL, NULL, NULL
    "line": Threshold(10, 440, most=500),  # letters and digits only; a statement, as of SQL
    "signs": Threshold(3, 800),  # mostly symbols or digits
    "code": Threshold(3, 2000),  # code in a fence, and few kinds of symbols: rulers, rows of zeros
    "arguments": Threshold(3, 8000),  # of a call
}
LATE: Final = Threshold(3, 200)  # of a text beyond the tool-call limit
# A lap of more than 1,000 characters is hardly intended three times.
LONG: Final = Threshold(3, 0)
LONG_PERIOD: Final = 1000
# gemini-cli's rule: the same 50 characters ten times, 75 apart on average. In periodic text, these
# are nine laps and 49 characters; in other text, at most two different pieces separate them.
PHRASE: Final = Threshold(9, 49)
PHRASE_OF: Final = 400  # the ``min_chars`` for which PHRASE holds; others scale it
PHRASE_LENGTH, PHRASE_DISTANCE, PHRASE_KINDS = 50, 75, 2
PHRASE_A_LAP: Final = 2.5  # ten times for the default ``min_laps`` of 4; others scale it
# Sentences that differ in one word only: how many, and of how many words each.
SENTENCES: Final = Threshold(4, 1000)
LATE_SENTENCES: Final = Threshold(4, 500)  # beyond the tool-call limit
MIN_WORDS, MAX_WORDS = 4, 40
# A lap counts as symbols if it has only one word, or a smaller share of letters and prose marks.
LETTERS: Final = 0.85
LETTERS_OF_LINE: Final = 0.7  # of a statement
KINDS_OF_SIGNS: Final = 7  # with as many different characters, a lap of symbols is not a ruler
_PROSE = frozenset(".,!?…'’。，！？、；：")
_WORD = re.compile(r"\w++")
_ENCODED = re.compile(r"[\w+/=-]{32}\s*\Z")


@lru_cache(maxsize=4096)
def characters(rules: GenerationSettings, place: Place, period: int, *, late: bool) -> int:
    """Return from how many characters on a repetition with this period is too long."""
    laps = rules.min_laps * period
    phrase = (PHRASE.laps * period + PHRASE.characters) * rules.min_chars // PHRASE_OF
    text = max(laps, min(rules.min_chars, phrase))
    if period > LONG_PERIOD:
        text = LONG.laps * period
    if late and place == "text":
        return min(text, max(LATE.laps * period, LATE.characters))
    row = TABLE[place]
    enough = min(max(row.laps * period, row.characters), row.most)
    return max(text, enough, MIN_LAPS * period if row.laps else 0)


def is_signs(lap: str) -> bool:
    """Whether a lap is mostly symbols or digits, or one word: rulers, rows of a table."""
    dense = "".join(lap.split())
    if sum(char.isalpha() or char in _PROSE for char in dense) < LETTERS * len(dense):
        return True
    # A lap may begin within a word, so its first and last words may be two parts of one.
    words = _WORD.findall(lap * 2)[1:-1] if len(dense) < len(lap) or not lap.isascii() else ()
    return len(set(words)) < 2


def place_of_signs(lap: str, before: str) -> Place:
    """Return the row of a lap of symbols; ``before``: the last characters before the repetition."""
    dense = "".join(lap.split())
    if dense.isalnum() and _ENCODED.search(before):
        return "code"  # base64 or hexadecimal data, in which one letter may repeat for long
    if all(char.isalpha() or char in _PROSE for char in dense):
        return "values" if "," in dense else "word"
    if dense.isalnum():
        return "line"
    if len(set(lap)) < KINDS_OF_SIGNS:
        return "code"
    return "line" if sum(map(str.isalpha, dense)) >= LETTERS_OF_LINE * len(dense) else "signs"
