"""Text that others wrote, made fit for a terminal, for a line of its own and for a quotation."""

from __future__ import annotations

import re

# Control characters, and what Unicode calls the end of a line or a paragraph.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def printable(text: str) -> str:
    """The text with its control characters written out: it moves no cursor and begins no line."""
    return text if text.isprintable() else _CONTROL.sub(_escaped, text)  # nearly always it is


def abridged(text: str, most: int) -> str:
    """The text; its beginning and its end, of as many characters together, where it is longer."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} … {text[-half:]}"


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
