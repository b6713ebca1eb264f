"""When two texts of an assistant are the same.

They are when they are equal, or when they are at least so much alike and hold the same numbers,
paths and quoted strings: a ReAct agent's ``Action Input`` lives in its text, and page 4 is not
page 3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...core.turn import Turn

# Scripts without blanks between words (kana, Chinese, Thai): each character counts.
_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORDS: Final = re.compile(f"[{_UNSPACED}]|[^ {_UNSPACED}]+")
# A transcript comes again with every request: what was compared word by word is remembered, by
# digest. The oldest go first.
MAX_COMPARED: Final = 4096
_compared: dict[tuple[int, int, float], bool] = {}


def same_text(one: Turn, other: Turn, threshold: float) -> bool:
    """Whether two turns' texts are the same; ``threshold``: 0 to 1, 1 for equal ones only."""
    if one.text == other.text:
        return True
    if one.facts != other.facts or not one.words or not other.words:
        return False
    key = one.text, other.text, threshold
    alike = _compared.get(key)
    if alike is None:
        alike = _compared[key] = are_alike(_words(one.words), _words(other.words), threshold)
        if len(_compared) > MAX_COMPARED:
            del _compared[next(iter(_compared))]
    return alike


def _words(text: str) -> list[str]:
    return text.split(" ") if text.isascii() else _WORDS.findall(text)


def are_alike(one: Sequence[str], other: Sequence[str], threshold: float) -> bool:
    """Whether the share of words that both have, in the same order, is at least ``threshold``.

    2 · common / all, as difflib's ratio, with the longest common subsequence as what is common.
    """
    total = len(one) + len(other)
    most = int((1 - threshold) * total + 1e-9)  # that many words may be left over
    # Most texts that differ have too many words that the other hasn't, in whatever order.
    if len(set(one) ^ set(other)) > most:
        return False
    return total - 2 * common(one, other) <= most


def common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence, in words.

    The bit-parallel algorithm of Hyyrö, "Bit-Parallel LCS-length Computation Revisited" (2004): a
    row of the textbook's table is one integer, so its rows cost about the same whatever differs.
    """
    places: dict[str, int] = {}  # word → a bit for each place in `one`
    for at, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << at
    every = (1 << len(one)) - 1
    row = every
    for word in other:
        if found := row & places.get(word, 0):
            row = (row + found | row - found) & every
    return len(one) - row.bit_count()
