"""LongCat: `<longcat_tool_call>` around JSON, or around GLM's tags with a prefix."""

from __future__ import annotations

from app.tool_calls.formats import glm
from app.tool_calls.formats.base import Block, Format, Source, Where
from app.tool_calls.formats.hermes import follow
from app.tool_calls.formats.json_calls import json_block

OPENER = "<longcat_tool_call>"

_read_json = json_block("</longcat_tool_call>", stop=(OPENER,), skip=len(OPENER))


def read(src: Source, start: int) -> Block | None:
    """The JSON form, else the tagged one."""
    block = _read_json(src, start)
    if block is not None:
        return block
    found = glm.read_body(src, start + len(OPENER), "longcat_")
    return None if found is None else Block(found[1], (found[0],))


FORMAT = Format("longcat", (OPENER,), read, Where.TAG, follow)
