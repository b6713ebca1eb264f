"""Patterns for many words at once, as a trie: `re` tries alternatives one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterable


def trie(words: Iterable[str]) -> dict[str, dict]:  # type: ignore[type-arg]
    """By character; the key "" where a word ends."""
    root: dict[str, dict] = {}  # type: ignore[type-arg]
    for word in words:
        node = root
        for character in word:
            node = node.setdefault(character, {})
        node[""] = {}
    return root


def guarded(words: list[str]) -> str:
    """A pattern for words; where many begin alike, their second characters are judged at once."""
    patterns = []
    for first, rest in trie(words).items():
        second = "".join(re.escape(char) for char in rest)
        guard = f"(?![^{second}])" if len(rest) > 4 else ""
        patterns.append(re.escape(first) + guard + _rest(rest))
    return "|".join(patterns)


def branches(node: dict[str, dict]) -> list[str]:  # type: ignore[type-arg]
    """Patterns that together match the words of a trie, each one character and what follows it."""
    return [re.escape(char) + _rest(rest) for char, rest in node.items() if char]


def _rest(node: dict[str, dict]) -> str:  # type: ignore[type-arg]
    options = branches(node)
    body = options[0] if len(options) == 1 else f"(?:{'|'.join(options)})" if options else ""
    # Longest first: a word goes on where it can.
    return f"(?:{body})?" if "" in node and body else body


def beginning_of(words: Iterable[str]) -> str:
    """A pattern for what may be the beginning of one of the words, at the end of the text."""
    return _beginning(trie(words))


def begun_by(words: Iterable[str]) -> str:
    """A pattern for one of the words, wherever it stands, or at the end for its beginning.

    Flat, each branch beginning with a character: so `re` skips to the next of those characters.
    """
    root = trie(words)
    return "|".join(re.escape(char) + _beginning(rest, whole=True) for char, rest in root.items())


def _beginning(node: dict[str, dict], whole: bool = False) -> str:  # type: ignore[type-arg]
    if whole and "" in node:
        return ""
    options = [re.escape(char) + _beginning(rest, whole) for char, rest in node.items() if char]
    return f"(?:{'|'.join([*options, chr(92) + 'Z'])})"
