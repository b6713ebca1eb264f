"""Read ReAct's calls: ``Action: name`` on one line, ``Action Input: {…}`` on the next.

Only the first action counts: if an observation follows, the model has invented it and the rest.
"""

from __future__ import annotations

import re

from ..tools import ToolSet
from .base import Block, Format, Source, Where, marked
from .json_calls import read_json

_OBSERVATION = re.compile(r"\s*+Observation\s*+:")


def follow(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether the rest of the line may be a tool's name."""
    line, newline, _ = text[pos : pos + 240].partition("\n")
    name = line.strip().strip("`*").strip()
    return tools.tool_named(name) is not None if newline else len(line) < 240


_ACTION = marked(
    "react",
    ("Action:",),
    r"Action:[ \t]*+\**+[ \t]*+`?(?P<name>[^\s`*(){}:]{1,200})`?\**+[ \t]*+\n\s*+"
    r"\**+Action Input\s*+:\s*+\**+[ \t]*+(?=\{|```)",
    read_json,
    stop="\n(?:Observation|Thought|Action)",
)


def read(src: Source, start: int) -> Block | None:
    """Read the action and its input; the block includes an invented observation and the rest."""
    block = _ACTION.read(src, start)
    if block is not None and _OBSERVATION.match(src.text, block.end):
        return Block(len(src.text), block.calls, src.text[block.end :])
    return block


FORMATS = (Format("react", ("Action:",), read, Where.LINE, follow),)
