"""The table of all formats: a row for each, or for each kind of opener that a format has.

Formats that share an opener are tried in this order, and the first that reads a call wins.

The scanner searches a text with ``TRIGGER`` for all words that begin a call, reasoning or shown
text, and for each tag that may be a tool's own element. ``may_become`` looks up in a sorted list
whether the end of a text begins such a word.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final

from ...wire.thoughts import REASONING, REASONING_ENDS
from . import harmony, json_calls, marks, python_calls, tag_marks
from .base import LONGEST_MARK, PLAIN_ENDS, VENDOR_MARK, VENDOR_MARK_BEGUN, Format, Where

FORMATS: tuple[Format, ...] = (
    *marks.FORMATS,
    *tag_marks.FORMATS,
    *harmony.FORMATS,
    *python_calls.FORMATS,
    *json_calls.FORMATS,
)

# Opener → closer of text that is only shown and contains no calls.
SHOWN: dict[str, str] = {"<!--": "-->"}


# Opener → the rows that it may begin.
ROWS: Final[dict[str, list[Format]]] = {}
for _row in FORMATS:
    for _opener in _row.openers:
        ROWS.setdefault(_opener, []).append(_row)
FENCES: Final = ("```", "~~~")
WORDS: Final = tuple(
    sorted(
        {
            *(opener for opener in ROWS if opener not in "{[" and not opener.startswith("```")),
            *REASONING,
            *REASONING_ENDS,
            *SHOWN,
            *PLAIN_ENDS,
            *FENCES,
        }
    )
)
# Marks that begin, end or show something; any other token may end a turn.
KNOWN: Final = frozenset(
    mark
    for word in (*ROWS, *REASONING, *REASONING_ENDS, *SHOWN)
    for mark in (word, *re.findall(rf"\A(?:{VENDOR_MARK})", word))
)
LONGEST: Final = max(LONGEST_MARK, *map(len, WORDS))
# Words that begin with one of these characters count at the start of a line only.
LINE_STARTS: Final = {
    word[0] for word in WORDS if word in ROWS and ROWS[word][0].where is Where.LINE
}
LINE_STARTS.update("`~")


def _one_of(words: Iterable[str]) -> str:
    """Return a pattern for the longest of these words that tries each letter once."""
    return "|".join(
        f"{re.escape(initial)}(?:{_one_of(word[1:] for word in group)})" if initial else ""
        for initial, group in groupby(sorted(words, reverse=True), key=lambda word: word[:1])
    )


# `tag`: an element, which counts only if it has a tool's name.
TRIGGER: Final = re.compile(rf"{_one_of(WORDS)}|<(?P<tag>[A-Za-z_][\w.-]{{0,199}}+>)|{VENDOR_MARK}")


def _beginnings(words: Iterable[str]) -> str:
    """Return a pattern for the proper beginnings of these words."""
    groups = groupby(sorted(filter(None, words)), key=lambda word: word[0])
    return "|".join(
        f"{re.escape(initial)}(?:{_beginnings(word[1:] for word in group)})?"
        for initial, group in groups
    )


# The end of a text that may begin a trigger.
BEGUN: Final = re.compile(rf"(?:{_beginnings(WORDS)})\Z|{VENDOR_MARK_BEGUN.pattern}")
# Two quick tests for plain prose: text that they don't match contains none of the words and does
# not end in the beginning of one. A word that begins with a letter is recognised by its first four,
# and one that counts only at the start of a line only there. `SIGN` suffices where no tool is
# offered: what is then removed from texts begins with a symbol.
_SIGNS: Final = re.escape("".join({word[0] for word in WORDS if not word[0].isalpha()}))
SIGN: Final = re.compile(f"[{_SIGNS}]")


def _begun(words: Iterable[str]) -> str:
    """Return a pattern for the first four letters of these words, or fewer at the text's end."""
    begun = {word[:size] for word in words for size in range(1, 5)}
    stems = (re.escape(one) + r"\Z" * (len(one) < 4) for one in sorted(begun))
    return f"(?:{'|'.join(stems)})"


_LINE_WORDS: Final = {word for word in WORDS if word[0].isalpha() and word[0] in LINE_STARTS}
_OTHERS: Final = {word for word in WORDS if word[0].isalpha()} - _LINE_WORDS
SPECIAL: Final = re.compile(
    rf"[{_SIGNS}]|{_begun(_OTHERS)}|(?:(?:\A|[>\]▷])\s*+|\n[^\S\n]*+){_begun(_LINE_WORDS)}"
)


@lru_cache(maxsize=256)
def own_tags(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sorted tags of the tools whose own elements may be calls."""
    return tuple(sorted(f"<{name}>" for name in names if tag_marks.OWN_NAME.match(name)))


def may_become(words: Sequence[str], begun: str) -> bool:
    """Whether one of the sorted ``words`` begins with ``begun``."""
    index = bisect_left(words, begun)
    return index < len(words) and words[index].startswith(begun)


def begins_calls(mark: str) -> bool:
    """Whether a mark begins calls at any position."""
    return mark in ROWS and all(row.where is Where.MARK for row in ROWS[mark])
