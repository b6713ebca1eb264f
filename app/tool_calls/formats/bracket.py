"""`[Calling tool: name({"key": "value"})]`, as Qwen models imitate a transcript."""

from __future__ import annotations

import re

from app.tool_calls.formats import python_calls
from app.tool_calls.formats.base import Block, Format, Source, Where
from app.tool_calls.formats.json_calls import close

OPENERS = ("[Calling tool:", "[Calling tool=")

_HEAD = re.compile(r"\[Calling tool[:=]\s*")


def read(src: Source, start: int) -> Block | None:
    """One call; the closing bracket may be missing at the end of the reply."""
    head = _HEAD.match(src.text, start)
    found = python_calls.read_call(src, head.end()) if head else None
    if found is None:
        return None
    return Block(close(src.text, found[1], ("]",)), (found[0],))


FORMAT = Format("calling_tool_bracket", OPENERS, read, Where.TAG, python_calls.follow_spaced)
