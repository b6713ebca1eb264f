"""What an assistant's text says, brought into a form in which two texts can be compared."""

from __future__ import annotations

import functools
import re
from typing import Final

from .call_keys import digest

MAX_WORDS: Final = 4000  # characters kept of a text for comparing
MAX_TEXT: Final = 65_536  # characters of a text that is looked into; longer ones only by digest
_SENTENCE_ENDS: Final = re.compile(r"(?<=[.!?:;])\s+|(?<=[。！？；])|\n+")
# What tells two texts apart however alike they are: calls written as text, quoted strings, paths,
# names of files, numbers. An apostrophe within a word quotes nothing. Each has a sign without which
# it needn't be looked for: most texts have few of them, and replies may be megabytes.
_FACTS: Final[tuple[tuple[str | re.Pattern[str], str], ...]] = (
    ("Action Input", r"^[ \t*#]*Action Input[ \t*]*:(?s:.*?)(?=\n[ \t]*Observation|\Z)"),
    ("Action", r"^[ \t*#]*Action[ \t*]*:.*"),
    ("```", r"```(?s:.*?)(?:```|\Z)"),
    ("<code>", r"<code>(?s:.*?)(?:</code>|\Z)"),
    ("</", r"<(?P<tag>\w{1,40})>[^<]{1,400}</(?P=tag)>"),
    ("(", r"\b\w{1,64}\([^()\n]{1,200}\)"),
    ('"', r"\"[^\"]{1,400}\""),
    ("`", r"`[^`]{1,400}`"),
    ("“", r"“[^”]{1,400}”"),
    ("「", r"「[^」]{1,400}」"),
    ("'", r"(?<!\w)'(?:[^'\n]|'(?=\w)){1,400}'(?!\w)"),
    # Looked for where a word begins, and each word is read once.
    (re.compile(r"[/\\]"), r"(?<![^\s\"'`])[^\s\"'`/\\]*+[/\\]\S*"),
    (re.compile(r"\.[A-Za-z]"), r"(?<![\w-])[\w-]++\.[A-Za-z]\w*"),
    (re.compile(r"\d"), r"\d+"),
)


def collapse(text: str) -> str:
    """Whitespace collapsed to single blanks, none at the ends."""
    if text.isprintable() and "  " not in text:
        return text.strip(" ")  # a line of words: a blank is the only whitespace in print
    return " ".join(text.split())


def sentences(text: str) -> str:
    """A long text's sentences, each as a hash of this process's own."""
    if len(text) > MAX_TEXT:
        return ""
    found = filter(None, map(collapse, _SENTENCE_ENDS.split(text)))
    whole = " ".join([f"{hash(one) & 0xFFFFFFFF:x}" for one in found])
    return whole if len(whole) <= MAX_WORDS else ""


def facts(text: str) -> int:
    """A digest of what tells two texts apart however alike they are; 0 where there is nothing."""
    if len(text) > MAX_TEXT:
        return 0
    there = tuple(
        [
            pattern
            for sign, pattern in _FACTS
            if (sign in text if isinstance(sign, str) else sign.search(text))
        ]
    )
    if not there:
        return 0
    found = [collapse(match.group()) for match in _any_of(there).finditer(text)]
    return digest(*found) if found else 0


@functools.lru_cache(maxsize=256)
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.MULTILINE)
