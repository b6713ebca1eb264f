"""Whether a text joins several values, in any of the languages that models are asked in.

What joins in one language is another word, a letter or a name in the next: "World of Warcraft",
"Can I sign up", "Vitamin E oil", "Uncle Dan". A short word counts only as its language writes it,
and not in a text that is English; Dutch `of` not where something says that it is the English one.
"""

from __future__ import annotations

import re
from itertools import pairwise
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
# What stands before `of` in English, written small: measures, vessels, kinds, parts, relations.
_WORDS_BEFORE_OF: Final = """
    type types kind kinds sort sorts form forms number amount quantity level degree rate ratio
    percentage majority lack loss use history theory study science philosophy meaning definition
    origin cause causes effect effects symptoms list table set sets pair series collection group
    crowd piece pieces slice loaf chest cup cups glass bottle bottles bag bowl box can jar pack
    packet bunch bouquet gallon pint pound ounce litre liter end beginning middle edge side rest
    half quarter top bottom cost price value size length depth width height speed weight age date
    day days year years time place point state terms proof bill rights freedom breach rule code
    conduct letter statement certificate power sense sea city town county university department
    ministry museum museums bank world king queen lord house heart castle church tower gulf bay
    isle lake statue garden quality game games call fall out because instead ahead all one some
    most any full made afraid capable lots plenty dozens hundreds thousands millions photo photos
    picture pictures image images book books story stories name names love fear god gods art
"""
_ENGLISH: Final = frozenset(_ENGLISH_WORDS.split())
_DUTCH: Final = frozenset(_DUTCH_WORDS.split())
_DUTCH_SPELLING: Final = re.compile(r"(?<![ei])ij(?![aeio])", re.IGNORECASE)
_BEFORE_OF: Final = frozenset(_WORDS_BEFORE_OF.split())


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
    """By an `of`: "melk of brood". In doubt it is, if the words beside it are written small."""
    if "of" not in parts[1:-1]:
        return False
    if _speaks(parts, _DUTCH) or any(_DUTCH_SPELLING.search(part) for part in parts):
        return True
    if _speaks(parts, _ENGLISH) or not {"a", "an"}.isdisjoint(parts):
        return False
    last_name = max((at for at, part in enumerate(parts) if part[0].isupper()), default=-1)
    return any(
        word == "of"
        and before.lower() not in _BEFORE_OF
        and not (before[0].isupper() and at + 2 <= last_name)
        for at, (before, word) in enumerate(pairwise(parts[:-1]))
    )


def _speaks(parts: list[str], language: frozenset[str]) -> bool:
    return any(part.strip("?!.:'\"").lower() in language for part in parts)
