"""MiniCPM 5: `<function name="…"><param name="…">value</param></function>`, values in CDATA."""

from __future__ import annotations

import re

from app.tool_calls.formats.base import Block, Format, Source, Where
from app.tool_calls.formats.json_calls import close
from app.tool_calls.formats.tagged import Tags, read_call

OPENER = "<function name="

_FUNCTION = re.compile(r"<function\s+name\s*=\s*(\"[^\"\n]*\"|'[^'\n]*'|[^\s>]+)\s*>")
_TAGS = Tags(
    parameter=re.compile(r"<param\s+name\s*=\s*(?P<key>\"[^\"\n]*\"|'[^'\n]*'|[^\s>]+)\s*>"),
    next_parameter="<param",
    end="</param>",
    last=("</function>",),
    trim="cdata",
    # The format's own reader leaves out parameters that the tool does not have.
    known_only=True,
)


def read(src: Source, start: int) -> Block | None:
    """One function; the next is the next block."""
    match = _FUNCTION.match(src.text, start)
    if match is None:
        return None
    call, end = read_call(src, match.group(1).strip("\"'"), match.end(), _TAGS)
    return Block(close(src.text, end, ("</function>",)), (call,))


FORMAT = Format("minicpm5_xml", (OPENER,), read, Where.TAG)
