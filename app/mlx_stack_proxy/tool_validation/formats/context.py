"""Whether a call may begin at a place: not in quotes, inline code or quoted lines."""

from __future__ import annotations

import re

from .base import WINDOW

# How far ahead the backtick that closes inline code may be.
_AHEAD = 1_000

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
_BEFORE_QUOTE = " \t\n([{:=,>*_–—-"
_BACKTICKS = re.compile(r"`+")
_TAG = re.compile(r"<(?!/)(?![^<>]*end)[^<>\s]{1,60}>|\[TOOL_(?:CALLS|REQUEST)\]")


def lead_of(text: str, pos: int, floor: int = 0) -> str:
    """The text before `pos` that counts, from `floor` on."""
    return text[max(floor, pos - WINDOW) : pos]


def starts_line(text: str, pos: int, floor: int = 0) -> bool:
    """Whether only whitespace, a tag or a call stands before `pos` on its line."""
    line = lead_of(text, pos, floor).rpartition("\n")[2].strip()
    return not line or line.endswith((">", "[/THINK]", "▷"))


def closing_quote(text: str, pos: int, floor: int = 0) -> str:
    """What closes the quote that opens right before `pos`; "" where none does."""
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
    """`lead` without opening tags at its end: what they are in, a call behind them is in, too."""
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
    """What ends the quote, inline code or quoted line in which `pos` lies; None in none of them.

    Decided by the text before `pos`, except for inline code, which only its closing backtick
    proves: "" until that, or the end of the line, has come.
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
