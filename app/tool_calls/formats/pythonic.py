"""Python calls in a list: bare (Llama 3.2), `<|python_start|>` (Llama 4), LFM2's tags, OLMo 3's."""

from __future__ import annotations

import re

from app.tool_calls.formats import python_calls
from app.tool_calls.formats.base import (
    Block,
    Format,
    Reader,
    Source,
    ToolSet,
    Verdict,
    Where,
)
from app.tool_calls.formats.context import lead_of, starts_line
from app.tool_calls.formats.json_calls import close, read_calls
from app.tool_calls.formats.literals import skip_space

LIST = "["
LLAMA4 = "<|python_start|>"
LFM2 = "<|tool_call_start|>"
OLMO3 = "<function_calls>"


def follow_tag(text: str, pos: int, tools: ToolSet) -> Verdict:
    """A list, or `name(` of a tool."""
    at = skip_space(text, pos)
    return Verdict.YES if text.startswith("[", at) else python_calls.follow(text, at, tools)


def read_list(src: Source, start: int) -> Block | None:
    """`[a(x=1), b()]` that fills its lines: nothing but the end of the line behind it.

    Or a new sentence, where the reply begins with the list.
    """
    found = python_calls.read_calls(src, start)
    if found is None:
        return None
    rest = src.text[found[1] : found[1] + 80].partition("\n")[0].strip()
    goes_on = rest and not rest.startswith("<")
    if goes_on and not (rest[0].isupper() and not src.text[:start].strip()):
        return None
    return Block(found[1], tuple(found[0]))


# Before a list that is a part of code, or of a sentence.
_PART_OF = re.compile(r"(?:[^\w\s.:!?)*>]|\b(?:return|await|yield|in|is|as|or|and|with|like))\s*\Z")


def read_list_behind(src: Source, start: int) -> Block | None:
    """The same behind other text on its line, as a reply's end: `Checking both. [a(x=1), b()]`."""
    if starts_line(src.text, start) or _PART_OF.search(lead_of(src.text, start)[-80:]):
        return None
    found = python_calls.read_calls(src, start)
    if found is None or src.text[found[1] :].strip():
        return None
    return Block(found[1], tuple(found[0]))


def _tagged(opener: str, closer: str) -> Reader:
    def read(src: Source, start: int) -> Block | None:
        pos = start + len(opener)
        found = python_calls.read_calls(src, pos) or read_calls(src, pos, (closer, opener))
        if found is None:
            return None
        return Block(close(src.text, found[1], (closer,)), tuple(found[0]))

    return read


FORMATS = (
    Format("pythonic", (LIST,), read_list, Where.LINE, python_calls.follow_spaced),
    Format("pythonic", (LIST,), read_list_behind, Where.TAG, python_calls.follow_spaced),
    Format("pythonic", (LLAMA4,), _tagged(LLAMA4, "<|python_end|>")),
    Format("lfm2", (LFM2,), _tagged(LFM2, "<|tool_call_end|>")),
    Format("olmo3", (OLMO3,), _tagged(OLMO3, "</function_calls>"), Where.TAG, follow_tag),
)
