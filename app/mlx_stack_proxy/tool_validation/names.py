"""Names as models misspell them: words, spelling-blind comparison, tool names, near names.

A name is only ever taken for another when both are the same letters and digits, whatever their
case and separators, and no second tool is. A name that is merely similar is the model's to correct:
it is told which tools are near.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Final

MAX_NAME: Final = 200  # longer names are shortened in sentences and never compared

_SEPARATORS: Final = re.compile(r"[\s\-_./:]+")
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
# Namespaces that chat templates put before a tool's name (gpt-oss and Kimi K2; Gemini).
NAMESPACE: Final = re.compile(r"(?:functions?|tools?|default_api)[./:]", re.IGNORECASE)
# What servers leave around a tool's name; each is taken off once, under the rule's name.
DRESSINGS: Final = {
    "name_call_id": re.compile(r":\d{1,6}$"),
    "name_prefix": re.compile(f"^{NAMESPACE.pattern}", re.IGNORECASE),
}


def words(name: str) -> list[str]:
    """The words of an identifier, in lower case: ``filePath2`` → file, path, 2."""
    return [word.lower() for word in _WORDS.findall(name[:MAX_NAME])]


def squash(name: str) -> str:
    """`name` without case and separators: what two spellings of one name have in common."""
    return _SEPARATORS.sub("", name).casefold()


def resolve(name: str, offered: Iterable[str]) -> tuple[str, tuple[str, ...]] | None:
    """The one offered tool that `name` spells, and the rules applied; None where there is none.

    Rules: ``name_marker`` (a template's marker behind the name is cut off), ``name_prefix``
    (``functions.``), ``name_call_id`` (Kimi's ``:3``), ``name_spelling`` (case and separators).
    """
    tools = list(offered)
    if len(name) > MAX_NAME:
        return None
    bare, marker, _ = name.partition("<|")
    trimmed = bare.strip().strip("`\"'").removesuffix("()")
    rules = ["name_marker"] if marker else ["name_spelling"] if trimmed != bare else []
    found = _spelled(trimmed, tools)
    for rule, dressing in DRESSINGS.items():
        if found is None and dressing.search(trimmed):
            rules.append(rule)
            trimmed = dressing.sub("", trimmed)
            found = _spelled(trimmed, tools)
    if found is None:
        return None
    if found != trimmed and "name_spelling" not in rules:
        rules.append("name_spelling")
    return found, tuple(rules)


def _spelled(name: str, tools: Sequence[str]) -> str | None:
    if not name:
        return None
    if name in tools:
        return name
    wanted = squash(name)
    same = [tool for tool in tools if squash(tool) == wanted] if wanted else []
    return same[0] if len(same) == 1 else None


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
