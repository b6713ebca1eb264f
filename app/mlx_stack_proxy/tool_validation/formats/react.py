"""ReAct: `Action: name` on one line, `Action Input: {…}` on the next. Also Command-R's fenced list.

Only the first action counts: what follows an observation was invented together with it.
"""

from __future__ import annotations

import re

from .base import Begins, Block, Call, Format, Source, SpelledTools, Where
from .json_calls import object_text, read_calls
from .literals import dumps
from .typed import typed

_LINE = re.compile(r"[ \t]*+\**+[ \t]*+`?([^\s`*(){}:]{1,200})`?\**+[ \t]*+\n\s*+")
_INPUT = re.compile(r"\**+Action Input\s*+:\s*+\**+[ \t]*+")
_FENCED = re.compile(r"[ \t]*+\n?```(?:json)?[ \t]*+\n")
_OBSERVATION = re.compile(r"\s*+Observation\s*+:")


def follow(text: str, pos: int, tools: SpelledTools) -> Begins:
    """The name of a tool alone on the line, or a fence."""
    line, newline, _ = text[pos : pos + 240].partition("\n")
    name = line.strip().strip("`*").strip()
    if line.strip().startswith("```") or (newline and not name):
        return Begins.YES
    if newline:
        return Begins.NO if tools.resolve(name) is None else Begins.YES
    if len(line) >= 240:
        return Begins.NO
    return Begins.MAYBE if not name or tools.could_start(name) else Begins.NO


def read(src: Source, start: int) -> Block | None:
    """The action and its input."""
    pos = start + len("Action:")
    fenced = _FENCED.match(src.text, pos)
    if fenced is not None:
        found = read_calls(src, fenced.end(), ("```",))
        return Block(found[1], tuple(found[0])) if found else None
    name = _LINE.match(src.text, pos)
    given = _INPUT.match(src.text, name.end()) if name else None
    if name is None or given is None:
        return None
    if src.text.startswith(("{", "```"), given.end()):
        arguments, end = object_text(src, given.end(), ("\nObservation", "\nThought", "\nAction"))
        return _block(src, end, Call(name.group(1), arguments))
    end = src.text.find("\n", given.end())
    end = end if end >= 0 else len(src.text)
    bound = _single(src, name.group(1), src.text[given.end() : end].strip())
    return None if bound is None else _block(src, end, Call(name.group(1), bound))


def _block(src: Source, end: int, call: Call) -> Block:
    if _OBSERVATION.match(src.text, end):
        return Block(len(src.text), (call,), src.text[end:])
    return Block(end, (call,))


def _single(src: Source, name: str, raw: str) -> str | None:
    """The arguments where plain text is given: only for a tool with at most one parameter."""
    properties = src.tools.properties(name)
    if not properties:
        return "{}" if raw.lower() in ("", "none", "null", "n/a") else None
    if len(properties) != 1 or not raw:
        return None
    (key, schema), *_ = properties.items()
    if len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "\"'":
        raw = raw[1:-1]
    return dumps({key: typed(raw, schema, src.tools.schema(name))})


FORMATS = (Format("react", ("Action:",), read, Where.LINE, follow),)
