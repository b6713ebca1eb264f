"""When two texts of an assistant are the same.

They are when they are equal, or when they are at least so much alike and hold the same numbers,
paths and quoted strings: a ReAct agent's ``Action Input`` lives in its text, and page 4 is not
page 3.
"""

from __future__ import annotations

from difflib import SequenceMatcher

from ...core.turns import Turn


def same_text(one: Turn, other: Turn, threshold: float) -> bool:
    """Whether two turns' texts are the same; ``threshold``: 0 to 1, 1 for equal ones only."""
    if one.text == other.text:
        return True
    if one.facts != other.facts or not one.words or not other.words:
        return False
    return _alike(one.words.split(" "), other.words.split(" "), threshold)


def _alike(one: list[str], other: list[str], threshold: float) -> bool:
    """Word by word: the share of words that both have, in order (Ratcliff and Obershelp)."""
    most = 2 * min(len(one), len(other)) / (len(one) + len(other))
    if most < threshold:
        return False
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return matcher.quick_ratio() >= threshold and matcher.ratio() >= threshold
