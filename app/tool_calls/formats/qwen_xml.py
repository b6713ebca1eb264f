"""Qwen3-Coder, Nemotron, Step 3.5, Seed-OSS: `<function=name><parameter=key>value</parameter>`.

With `<tool_call>` around it, without it, or with only its closing half.
"""

from __future__ import annotations

import re

from app.tool_calls.formats import hermes
from app.tool_calls.formats.base import MAX_CALLS, Block, Call, Format, Source, Where
from app.tool_calls.formats.json_calls import close
from app.tool_calls.formats.literals import skip_space
from app.tool_calls.formats.tagged import Tags, read_call

OPENER = "<function="
SEED_OPENER = "<seed:tool_call>"

# A line break stands for a forgotten `>`.
_FUNCTION = re.compile(r"<function=\s*+([^>\n<]{1,200}?)[ \t]*+(?:>|\n\s*+(?=<parameter=))")
_TAGS = Tags(
    parameter=re.compile(r"<parameter=(?P<key>[^>\n<]{1,200}?)[ \t]*(?:>|(?=\n))"),
    next_parameter="<parameter=",
    end="</parameter>",
    last=("</function>", "</tool_call>", "</seed:tool_call>"),
)


def read_functions(src: Source, pos: int) -> tuple[list[Call], int]:
    """All `<function=…>` blocks from `pos` on, and the index after them."""
    calls: list[Call] = []
    end = pos
    while len(calls) < MAX_CALLS:
        match = _FUNCTION.match(src.text, skip_space(src.text, end))
        if match is None:
            break
        name = match.group(1)
        name = name if name in src.tools.schemas else name.strip("\"'")
        found = read_call(src, name, match.end(), _TAGS)
        if found is None:
            break
        calls.append(found[0])
        end = close(src.text, found[1], ("</function>",))
    return calls, end


def read_wrapped(src: Source, start: int) -> Block | None:
    """`<tool_call>` (or Seed's own tag) and the functions in it."""
    calls, end = read_functions(src, src.text.index(">", start) + 1)
    if not calls:
        return None
    return Block(close(src.text, end, ("</tool_call>", "</seed:tool_call>")), tuple(calls))


def read_bare(src: Source, start: int) -> Block | None:
    """`<function=…>` without a wrapper."""
    match = _FUNCTION.match(src.text, start)
    if match is None or src.text.startswith("{", skip_space(src.text, match.end())):
        return None
    calls, end = read_functions(src, start)
    return Block(close(src.text, end, ("</tool_call>",)), tuple(calls)) if calls else None


FORMATS = (
    Format("qwen3_xml", (hermes.OPENER,), read_wrapped, Where.TAG, hermes.follow),
    Format("qwen3_xml", (SEED_OPENER,), read_wrapped, Where.TAG),
    Format("qwen3_xml", (OPENER,), read_bare, Where.TAG),
)
