"""Makes foreign text (a model's, a client's, LiteLLM's) safe to print and fit for a screen."""

from __future__ import annotations

import re
import textwrap
from typing import Any

# Control characters; line and paragraph separators; marks that reorder text or can't be seen (but
# not the joiners, which Persian and emoji need); halves of surrogate pairs, which no file can hold.
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*(?=@)")


def printable(text: str) -> str:
    """Return the text with its control characters escaped.

    Printed, the text can then neither move the cursor, nor begin a line, nor change the order in
    which others are read.
    """
    # The check is fast, and nearly every text is printable.
    return text if text.isprintable() else _CONTROL.sub(_escaped, text)


def printable_in(value: Any) -> Any:
    """Return JSON's data with all its strings, and names, made printable."""
    match value:
        case str():
            return printable(value)
        case list():
            return [printable_in(item) for item in value]
        case dict():
            return {printable(name): printable_in(item) for name, item in value.items()}
    return value


def without_credentials(text: str) -> str:
    """Return the text with ``…`` for a user's name and password in each URL."""
    return _CREDENTIALS.sub("…", text)


def abridged(text: str, max_chars: int) -> str:
    """Return the text; if it is longer than ``max_chars``, only its beginning and its end."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]} … {text[-half:]}"


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Break a text into lines, only between words.

    The first line begins with ``first``, all others with ``rest``.
    """
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
