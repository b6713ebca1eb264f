"""Python calls in a list: bare (Llama 3.2), `<|python_start|>` (Llama 4), LFM2's tags, OLMo 3's."""

from __future__ import annotations

from app.tool_calls.formats import python_calls
from app.tool_calls.formats.base import (
    Begins,
    Block,
    Format,
    Reader,
    Source,
    SpelledTools,
    Where,
)
from app.tool_calls.formats.json_calls import close, read_calls
from app.tool_calls.formats.literals import skip_space

LIST = "["
LLAMA4 = "<|python_start|>"
LFM2 = "<|tool_call_start|>"
OLMO3 = "<function_calls>"


def follow_tag(text: str, pos: int, tools: SpelledTools) -> Begins:
    """A list, or `name(` of a tool."""
    at = skip_space(text, pos)
    return Begins.YES if text.startswith("[", at) else python_calls.follow(text, at, tools)


def read_list(src: Source, start: int) -> Block | None:
    """`[a(x=1), b()]` that fills its lines: nothing but the end of the line behind it."""
    found = python_calls.read_calls(src, start)
    if found is None:
        return None
    rest = src.text[found[1] : found[1] + 80].partition("\n")[0].strip()
    return None if rest and not rest.startswith("<") else Block(found[1], tuple(found[0]))


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
    Format("pythonic", (LLAMA4,), _tagged(LLAMA4, "<|python_end|>")),
    Format("lfm2", (LFM2,), _tagged(LFM2, "<|tool_call_end|>")),
    Format("olmo3", (OLMO3,), _tagged(OLMO3, "</function_calls>"), Where.TAG, follow_tag),
)
