"""Decides whether a position is in quotes, inline code or a quoted line, where no call begins.

Only the last ``WINDOW`` characters before it count, so the answer is the same in a whole text and
in a stream.
"""

from __future__ import annotations

import re

from .base import WINDOW

_AHEAD = 1_000  # characters in which the backtick that closes inline code must follow

# Opening mark → closing mark. A backslash escapes the call's mark: the rest of the line is text.
_QUOTES = {
    '"': '"',
    "'": "'",
    "“": "”",
    "‘": "’",
    "«": "»",
    "「": "」",
    "『": "』",
    "`": "`",
    "\\": "\n",
}
# Characters after which a straight quotation mark opens a quote; after others it closes one.
_BEFORE_QUOTE = " \t\n([{:=,>*_–—-"
_BACKTICKS = re.compile(r"`+")
_TAG = re.compile(r"<(?!/)(?![^<>]*end)[^<>\s]{1,60}>|\[TOOL_(?:CALLS|REQUEST)\]")


def lead_of(text: str, pos: int, floor: int = 0) -> str:
    """Return the text before ``pos`` that counts, from ``floor`` on."""
    return text[max(floor, pos - WINDOW) : pos]


def starts_line(text: str, pos: int, floor: int = 0) -> bool:
    """Whether only whitespace, or text that ends in a tag, precedes ``pos`` on its line."""
    line = lead_of(text, pos, floor).rpartition("\n")[2].strip()
    return not line or line.endswith((">", "[/THINK]", "▷"))


def closing_quote(text: str, pos: int, floor: int = 0) -> str:
    """Return the mark that closes the quote opened right before ``pos``; "" if none is open."""
    lead = _before_tags(lead_of(text, pos, floor))
    if not lead or lead[-1] not in _QUOTES:
        return ""
    if lead.endswith(('"""', "'''")):
        return lead[-3:]
    opens = (
        lead[-1] in "`\\" or len(lead) == 1 or lead[-2] in _BEFORE_QUOTE or lead[-1] in "“‘«「『"
    )
    return _QUOTES[lead[-1]] if opens else ""


def _before_tags(lead: str) -> str:
    """Return ``lead`` without opening tags at its end: a quote before them covers the call, too."""
    for _ in range(4):
        bare = lead.rstrip()
        if not bare.endswith((">", "]")):
            break
        start = max(bare.rfind("<"), bare.rfind("[TOOL_"))
        if start < 0 or _TAG.fullmatch(bare, start) is None:
            break
        lead = bare[:start]
    return lead


def closer_at(text: str, pos: int, final: bool, floor: int = 0) -> str | None:
    """Return the mark that ends the quote, inline code or quoted line around ``pos``, or None.

    The text before ``pos`` decides, except for inline code, which only its closing backtick proves:
    until that or the line's end has arrived, the result is "".
    """
    if quote := closing_quote(text, pos, floor):
        return quote
    line = lead_of(text, pos, floor).rpartition("\n")[2]
    marks = line.lstrip()
    if marks.startswith(">") and not marks.startswith(">>>"):
        return "\n"
    if "`" not in line or len(_BACKTICKS.findall(line)) % 2 == 0:
        return None
    ahead, newline, _ = text[pos : pos + _AHEAD].partition("\n")
    if "`" in ahead:
        return "`"
    return None if newline or final or len(ahead) == _AHEAD else ""
