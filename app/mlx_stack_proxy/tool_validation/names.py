"""Compares names as models misspell them: splits, normalises, and ranks them by similarity."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from typing import Final

MAX_NAME: Final = 200  # characters; sentences shorten a longer name, comparisons skip its rest

_SEPARATORS: Final = re.compile(r"[\s\-_./:]+")
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")


def words(name: str) -> list[str]:
    """Split an identifier into its words, in lower case: ``filePath2`` → file, path, 2."""
    return [word.lower() for word in _WORDS.findall(name[:MAX_NAME])]


def squash(name: str) -> str:
    """Return ``name`` without case and separators, equal for all spellings of one name."""
    return _SEPARATORS.sub("", name).casefold()


def by_spelling(names: Iterable[str], *, part: Callable[[str], str] = str) -> dict[str, str]:
    """Map squashed names, or a part of each, to names; leave out those that share one."""
    spelled: dict[str, list[str]] = {}
    for name in names:
        spelled.setdefault(squash(part(name)), []).append(name)
    return {key: alike[0] for key, alike in spelled.items() if key and len(alike) == 1}


def nearest(name: str, offered: Iterable[str], limit: int = 3) -> list[str]:
    """Return up to ``limit`` of the offered names that resemble ``name``, the nearest first.

    A name resembles another by its letters (``difflib``'s ratio) and by shared words.
    """
    wanted_words = set(words(name))
    matcher = SequenceMatcher(b=squash(name[:MAX_NAME]))
    scored = []
    for tool in offered:
        shared = wanted_words & set(words(tool))
        matcher.set_seq1(squash(tool[:MAX_NAME]))
        if not shared and matcher.quick_ratio() < 0.6:
            continue
        score = matcher.ratio() + 0.5 * len(shared) / max(1, len(wanted_words))
        # below 0.6, two names share little more than common letters
        if score >= 0.6:
            scored.append((-score, tool))
    return [tool for _, tool in sorted(scored)[:limit]]
