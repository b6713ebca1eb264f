"""MiniCPM 5: `<function name="…"><param name="…">value</param></function>`, values in CDATA."""

from __future__ import annotations

import re

from app.tool_calls.formats.base import Block, Format, Source, Where
from app.tool_calls.formats.json_calls import close
from app.tool_calls.formats.tagged import Tags, read_call

OPENER = "<function name="
# As it looks where a server forgot to turn byte-level tokens back into text.
BYTES_OPENER = "<functionĠname="
_BYTES = str.maketrans({"Ġ": " ", "Ċ": "\n"})

_ARGUMENTS = re.compile(r"\s*<arguments>")
_FUNCTION = re.compile(r"<function\s+name\s*=\s*(\"[^\"\n]*\"|'[^'\n]*'|[^\s>]+)\s*>")
_TAGS = Tags(
    parameter=re.compile(r"<param\s+name\s*=\s*(?P<key>\"[^\"\n]*\"|'[^'\n]*'|[^\s>]+)\s*>"),
    next_parameter="<param",
    end="</param>",
    last=("</arguments>", "</function>"),
    trim="xml",
    # The format's own reader leaves out parameters that the tool does not have.
    known_only=True,
)


def read(src: Source, start: int) -> Block | None:
    """One function; the next is the next block."""
    if src.text.startswith(BYTES_OPENER, start):
        src.spend(len(src.text) - start)
        src = Source(src.text.translate(_BYTES), src.tools)
    match = _FUNCTION.match(src.text, start)
    if match is None:
        return None
    around = _ARGUMENTS.match(src.text, match.end())
    begin = around.end() if around else match.end()
    found = read_call(src, match.group(1).strip("\"'"), begin, _TAGS)
    if found is None:
        return None
    end = close(src.text, found[1], ("</arguments>",))
    return Block(close(src.text, end, ("</function>",)), (found[0],))


FORMAT = Format("minicpm5_xml", (OPENER, BYTES_OPENER), read, Where.TAG)
