"""All formats, one row each (more where a format has openers of different kinds).

Where several formats share an opener they are tried in this order; the first that reads a call
wins.

What begins a call, reasoning or shown text is found in a text that is coming by `TRIGGER`, with
each tag that may be a tool's own element. `may_become` says whether the end of a text is the
beginning of one, by looking it up in a sorted list.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final

from ...wire.thoughts import REASONING, REASONING_ENDS
from . import bare_json, harmony, marks, python_calls, react, tag_marks
from .base import Format, Where
from .elements import OWN_NAME

FORMATS: tuple[Format, ...] = (
    *marks.FORMATS,
    *tag_marks.FORMATS,
    *harmony.FORMATS,
    *python_calls.FORMATS,
    *react.FORMATS,
    *bare_json.FORMATS,
)

# Text that is shown rather than meant: no calls between these.
SHOWN: dict[str, str] = {"<!--": "-->"}


def _rows() -> dict[str, list[Format]]:
    rows: dict[str, list[Format]] = {}
    for row in FORMATS:
        for opener in row.openers:
            rows.setdefault(opener, []).append(row)
    return rows


ROWS: Final = _rows()
FENCES: Final = ("```", "~~~")
WORDS: Final = tuple(
    sorted(
        {
            *(opener for opener in ROWS if opener not in "{[" and not opener.startswith("```")),
            *REASONING,
            *REASONING_ENDS,
            *SHOWN,
            *FENCES,
        }
    )
)
LONGEST: Final = max(map(len, WORDS))
# What begins with one of these counts at the start of a line only.
LINE_STARTS: Final = {
    word[0] for word in WORDS if word in ROWS and ROWS[word][0].where is Where.LINE
}
LINE_STARTS.update("`~")
_TAG: Final = r"[A-Za-z_][\w.-]{0,199}+>"


def _one_of(words: Iterable[str], more: str = "") -> str:
    """A pattern for the longest of these; behind `<` also `more`."""
    found = []
    for first, same in groupby(sorted(words, reverse=True), key=lambda word: word[0]):
        rests = [re.escape(word[1:]) for word in same] + [more] * (first == "<")
        found.append(f"{re.escape(first)}(?:{'|'.join(rests)})")
    return "|".join(found)


TRIGGER: Final = re.compile(_one_of(WORDS, _TAG))
FIRST: Final = re.compile(f"[{re.escape(''.join({word[0] for word in WORDS}))}]")
# What text must hold to hold any of them, or to end in the beginning of one: of words four letters.
_LETTERS: Final = "".join({word[0] for word in WORDS if word[0].isalpha()})
_STEMS: Final = sorted({word[:4] for word in WORDS if word[0].isalpha()})
_SIGNS: Final = re.escape("".join({word[0] for word in WORDS if not word[0].isalpha()}))
SPECIAL: Final = re.compile(rf"[{_SIGNS}]|{'|'.join(_STEMS)}|[{_LETTERS}].{{0,2}}\Z")


@lru_cache(maxsize=256)
def own_tags(names: tuple[str, ...]) -> tuple[str, ...]:
    """The tags of the tools whose own elements need no mark, sorted."""
    return tuple(sorted(f"<{name}>" for name in names if OWN_NAME.match(name)))


def may_become(words: Sequence[str], begun: str) -> bool:
    """Whether one of the sorted `words` begins so."""
    at = bisect_left(words, begun)
    return at < len(words) and words[at].startswith(begun)
