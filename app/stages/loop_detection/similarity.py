"""When two texts of an assistant are the same.

They are when they are equal, or when they are at least so much alike and hold the same numbers,
paths and quoted strings: a ReAct agent's ``Action Input`` lives in its text, and page 4 is not
page 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...core.turns import Turn

MAX_DIFFERENT: Final = 160  # words; bounds the work, which grows with their square


def same_text(one: Turn, other: Turn, threshold: float) -> bool:
    """Whether two turns' texts are the same; ``threshold``: 0 to 1, 1 for equal ones only."""
    if one.text == other.text:
        return True
    if one.facts != other.facts or not one.words or not other.words:
        return False
    return are_alike(one.words.split(" "), other.words.split(" "), threshold)


def are_alike(one: Sequence[str], other: Sequence[str], threshold: float) -> bool:
    """Whether the share of words that both have, in the same order, is at least ``threshold``.

    2 · common / all, as difflib's ratio, with the longest common subsequence as what is common.
    """
    total = len(one) + len(other)
    most = min(int((1 - threshold) * total + 1e-9), MAX_DIFFERENT)
    return abs(len(one) - len(other)) <= most and differ_by_at_most(one, other, most)


def differ_by_at_most(one: Sequence[str], other: Sequence[str], most: int) -> bool:
    """Whether that many insertions and deletions of words, or fewer, turn one into the other.

    The greedy algorithm of Myers, "An O(ND) Difference Algorithm and Its Variations" (1986).
    """
    reached = {1: 0}  # diagonal → how far along `one`
    for edits in range(most + 1):
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (
                diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1]
            )
            x = reached[diagonal + 1] if down else reached[diagonal - 1] + 1
            y = x - diagonal
            while x < len(one) and y < len(other) and one[x] == other[y]:
                x += 1
                y += 1
            if x >= len(one) and y >= len(other):
                return True
            reached[diagonal] = x
    return False
