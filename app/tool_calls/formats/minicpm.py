"""MiniCPM 5: `<function name="…"><param name="…">value</param></function>`, values in CDATA.

Also with `parameter`, as models write it who mix it with Qwen3-Coder's tags; and in `<tool_call>`.
"""

from __future__ import annotations

import re

from app.tool_calls.formats import hermes
from app.tool_calls.formats.base import MAX_CALLS, Block, Call, Format, Source, Where
from app.tool_calls.formats.json_calls import close
from app.tool_calls.formats.literals import skip_space
from app.tool_calls.formats.tagged import Tags, read_call

OPENER = "<function name="
# As it looks where a server forgot to turn byte-level tokens back into text.
BYTES_OPENER = "<functionĠname="
_BYTES = str.maketrans({"Ġ": " ", "Ċ": "\n"})

_ARGUMENTS = re.compile(r"\s*<arguments>")
_FUNCTION = re.compile(r"<function\s+name\s*=\s*(\"[^\"\n]*\"|'[^'\n]*'|[^\s>]+)\s*>")
_NAMED = r"\s+name\s*=\s*(?P<key>\"[^\"\n]*\"|'[^'\n]*'|[^\s>]+)\s*>"
_TAGS = Tags(
    parameter=re.compile("<param" + _NAMED),
    next_parameter="<param",
    end="</param>",
    last=("</arguments>", "</function>"),
    trim="xml",
    # The format's own reader leaves out parameters that the tool does not have.
    known_only=True,
)
_LONG_TAGS = Tags(
    parameter=re.compile("<parameter" + _NAMED),
    next_parameter="<parameter",
    end="</parameter>",
    last=("</function>", "</tool_call>"),
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
    long = src.text.startswith(_LONG_TAGS.next_parameter, skip_space(src.text, begin))
    found = read_call(src, match.group(1).strip("\"'"), begin, _LONG_TAGS if long else _TAGS)
    if found is None:
        return None
    end = close(src.text, found[1], ("</arguments>",))
    return Block(close(src.text, end, ("</function>",)), (found[0],))


def read_wrapped(src: Source, start: int) -> Block | None:
    """`<tool_call>` and the functions in it."""
    calls: list[Call] = []
    end = start + len(hermes.OPENER)
    while len(calls) < MAX_CALLS:
        block = read(src, skip_space(src.text, end))
        if block is None:
            break
        calls += block.calls
        end = block.end
    return Block(close(src.text, end, (hermes.CLOSER,)), tuple(calls)) if calls else None


FORMATS = (
    Format("minicpm5_xml", (OPENER, BYTES_OPENER), read, Where.TAG),
    Format("minicpm5_xml", (hermes.OPENER,), read_wrapped, Where.TAG, hermes.follow),
)
