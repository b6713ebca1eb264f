"""Names as models misspell them: their words, what two spellings share, near names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final

MAX_NAME: Final = 200  # longer names are shortened in sentences and never compared

_SEPARATORS: Final = re.compile(r"[\s\-_./:]+")
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")


def words(name: str) -> list[str]:
    """The words of an identifier, in lower case: ``filePath2`` → file, path, 2."""
    return [word.lower() for word in _WORDS.findall(name[:MAX_NAME])]


def squash(name: str) -> str:
    """`name` without case and separators: what two spellings of one name have in common."""
    return _SEPARATORS.sub("", name).casefold()


def nearest(name: str, offered: Iterable[str], limit: int = 3) -> list[str]:
    """Up to `limit` offered names that look like `name` or share words with it, nearest first."""
    wanted_words = set(words(name))
    matcher = SequenceMatcher(b=squash(name[:MAX_NAME]))
    scored = []
    for tool in offered:
        shared = wanted_words & set(words(tool))
        matcher.set_seq1(squash(tool[:MAX_NAME]))
        if not shared and matcher.quick_ratio() < 0.6:
            continue
        score = matcher.ratio() + 0.5 * len(shared) / max(1, len(wanted_words))
        # Below this, names have little more than the letters of all English words in common.
        if score >= 0.6:
            scored.append((-score, tool))
    return [tool for _, tool in sorted(scored)[:limit]]
