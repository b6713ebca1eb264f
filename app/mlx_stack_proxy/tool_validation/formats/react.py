"""Read ReAct's calls: ``Action: name`` on one line, ``Action Input: {…}`` on the next.

Only the first action counts: if an observation follows, the model has invented it and the rest.
"""

from __future__ import annotations

import re

from ..tools import ToolSet
from .base import Block, Format, Source, Where
from .marks import named

_read = named(
    r"Action:[ \t]*+\**+[ \t]*+`?(?P<name>[^\s`*(){}:]{1,200})`?\**+[ \t]*+\n\s*+"
    r"\**+Action Input\s*+:\s*+\**+[ \t]*+(?=\{|```)",
    *("\nObservation", "\nThought", "\nAction"),
)
_OBSERVATION = re.compile(r"\s*+Observation\s*+:")


def follow(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether the rest of the line may be a tool's name."""
    line, newline, _ = text[pos : pos + 240].partition("\n")
    name = line.strip().strip("`*").strip()
    return tools.tool_named(name) is not None if newline else len(line) < 240


def read(src: Source, start: int) -> Block | None:
    """Read the action and its input; the block includes an invented observation and the rest."""
    reading = _read(src, start)
    if reading is None:
        return None
    if _OBSERVATION.match(src.text, reading[1]):
        return Block(len(src.text), tuple(reading[0]), src.text[reading[1] :])
    return Block(reading[1], tuple(reading[0]))


FORMATS = (Format("react", ("Action:",), read, Where.LINE, follow),)
