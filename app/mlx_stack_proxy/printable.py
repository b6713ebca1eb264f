"""Make foreign text (a model's, a client's, LiteLLM's) safe to print and fit for a screen."""

from __future__ import annotations

import re
import textwrap

# Control characters, and Unicode's line and paragraph separators.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def printable(text: str) -> str:
    """Return the text with its control characters escaped.

    Printed, the text can then neither move the cursor nor begin a line.
    """
    # The check first: it is fast, and nearly every text is printable.
    return text if text.isprintable() else _CONTROL.sub(_escaped, text)


def abridged(text: str, max_chars: int) -> str:
    """Return the text; if it is longer than ``max_chars``, only its beginning and its end."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]} … {text[-half:]}"


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


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
