"""Whether a text joins several values, in any of the languages that models are asked in.

What joins in one language is another word, a letter or a name in the next: "World of Warcraft",
"Can I sign up", "Vitamin E oil", "Uncle Dan". A short word counts only as its language writes it,
and not in a text that is English; Dutch `of` only in a text that is Dutch.
"""

from __future__ import annotations

import re
from typing import Final

_JOINS: Final = re.compile(
    r"[,;|\n\t、，；]|\s[&+/·•-]\s|\s(?:and|or|und|oder|och|eller|и|или|veya|atau|và|hoặc|then)\s"
    r"|[和与及或]",
    re.IGNORECASE,
)
_SHORT_JOINS: Final = frozenset({"y", "e", "o", "i", "et", "ou", "en", "og", "ve", "dan"})
_BORROWED: Final = frozenset(
    {("et", "al"), ("et", "al."), ("en", "suite"), ("en", "route"), ("en", "masse"),
     ("en", "passant"), ("en", "vogue")}
)  # fmt: skip

# English words that a letter goes with: `vitamin e oil`.
_LABELLED: Final = frozenset(
    {"type", "vitamin", "generation", "grade", "class", "category", "level", "section", "option"}
)

# Words that make a text English, and are none in the languages of the short joins.
_ENGLISH_WORDS: Final = """
    the can how what where when why which who should could would will may your you our their they
    she with from this that these those does did need find get about near if am my
"""
# Words that make a text Dutch, and so does `ij`, but as in Beijing, hijab or Fiji.
_DUTCH_WORDS: Final = """
    een het voor niet wel naar bij geen welke wat ik je zijn ook eerst zonder op uit te twee drie
    meer minder graag wil kan moet beide iets anders
"""
_ENGLISH: Final = frozenset(_ENGLISH_WORDS.split())
_DUTCH: Final = frozenset(_DUTCH_WORDS.split())
_DUTCH_SPELLING: Final = re.compile(r"(?<![ei])ij(?![aeio])", re.IGNORECASE)


def is_joined(text: str) -> bool:
    """Whether something in `text` may join several values."""
    if _JOINS.search(text):
        return True
    parts = text.split()
    return _is_joined_abroad(parts) or _is_joined_in_dutch(parts)


def _is_joined_abroad(parts: list[str]) -> bool:
    """By a short "and" or "or" of another language: "pane e latte"."""
    if _speaks(parts, _ENGLISH):
        return False
    loud = all(part.isupper() for part in parts if part.isalpha())
    return any(
        (word in _SHORT_JOINS or (loud and len(word) > 1 and word.lower() in _SHORT_JOINS))
        and (word, after.lower()) not in _BORROWED
        and not (len(word) == 1 and before.lower() in _LABELLED)
        for before, word, after in zip(parts, parts[1:], parts[2:], strict=False)
    )


def _is_joined_in_dutch(parts: list[str]) -> bool:
    """By an `of`, where something else says that it is the Dutch one: "een Fiat of een Opel"."""
    if "of" not in parts[1:-1] or _speaks(parts, _ENGLISH):
        return False
    return _speaks(parts, _DUTCH) or any(_DUTCH_SPELLING.search(part) for part in parts)


def _speaks(parts: list[str], language: frozenset[str]) -> bool:
    return any(part.strip("?!.:'\"").lower() in language for part in parts)
