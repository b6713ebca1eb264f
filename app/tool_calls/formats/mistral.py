"""Mistral: `[TOOL_CALLS]` before a JSON list (old), or before `name{…}`, `name[ARGS]{…}` (new)."""

from __future__ import annotations

import re

from app.tool_calls.formats.base import MAX_CALLS, Block, Call, Format, Source
from app.tool_calls.formats.json_calls import close, object_text, read_calls
from app.tool_calls.formats.literals import skip_space

OPENER = "[TOOL_CALLS]"

_NAME = re.compile(
    r"\s*([^\s\[\]{}\"'<>,]{1,200})\s*+(?:\[CALL_ID\]\s*+[\w-]*+\s*+)?+(?:\[ARGS\]\s*+)?+(?=\{)"
)
_BARE = re.compile(r"\s*([^\s\[\]{}\"'<>,]{1,200})\s*+(?:\[CALL_ID\]\s*+[\w-]*+\s*+)?+\[ARGS\]\s*")
_ENDS = ("</s>", "[/TOOL_CALLS]")


def read(src: Source, start: int) -> Block | None:
    """Either form; the new one may repeat, with the marker or without."""
    pos = start + len(OPENER)
    found = read_calls(src, pos, (OPENER, *_ENDS))
    if found is not None:
        return Block(close(src.text, found[1], _ENDS), tuple(found[0]))
    calls: list[Call] = []
    end = pos
    while len(calls) < MAX_CALLS:
        name = _NAME.match(src.text, end) or _BARE.match(src.text, end)
        if name is None:
            break
        arguments, end = object_text(src, name.end(), (OPENER, *_ENDS))
        calls.append(Call(name.group(1), arguments))
        if src.text.startswith(OPENER, skip_space(src.text, end)):
            break  # the next marker is read as the next block
    return Block(close(src.text, end, _ENDS), tuple(calls)) if calls else None


FORMAT = Format("mistral", (OPENER,), read)
