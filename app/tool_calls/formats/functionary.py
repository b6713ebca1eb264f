"""Functionary: v3.2 `>>>name` and JSON on the next line, v2 `<|recipient|>name<|content|>{…}`."""

from __future__ import annotations

import re

from app.tool_calls.formats.base import Begins, Block, Call, Format, Source, SpelledTools, Where
from app.tool_calls.formats.json_calls import object_text
from app.tool_calls.formats.literals import skip_space

V3 = ">>>"
V2 = "<|recipient|>"

_V3_NAME = re.compile(r">>>\s*([^\s<>{}\"']{1,200})\s*+(?=\{)")
_V2_NAME = re.compile(r"<\|recipient\|>\s*([^\s<>{}\"']{1,200})\s*<\|content\|>\s*(?=\{)")
_V2_STOP = ("<|stop|>", "<|from|>", V2)
_V2_END = re.compile(r"\s*<\|stop\|>")


def follow_v3(text: str, pos: int, tools: SpelledTools) -> Begins:
    """A tool's name: `>>>` alone is a quote or a Python prompt."""
    if text.startswith(" ", pos):
        return Begins.NO
    at = skip_space(text, pos)
    stop = at
    while stop < len(text) and not text[stop].isspace() and text[stop] != "{":
        stop += 1
        if stop - at > 200:
            return Begins.NO
    if stop == len(text):
        return Begins.MAYBE if tools.could_start(text[at:stop]) else Begins.NO
    return Begins.NO if tools.resolve(text[at:stop]) is None else Begins.YES


def read_v3(src: Source, start: int) -> Block | None:
    """`>>>name` and the arguments."""
    name = _V3_NAME.match(src.text, start)
    if name is None:
        return None
    arguments, end = object_text(src, name.end(), ("\n>>>", "<|eot_id|>"))
    return Block(end, (Call(name.group(1), arguments),))


def read_v2(src: Source, start: int) -> Block | None:
    """`<|recipient|>name`, `<|content|>` and the arguments."""
    name = _V2_NAME.match(src.text, start)
    if name is None:
        return None
    arguments, end = object_text(src, name.end(), _V2_STOP)
    closer = _V2_END.match(src.text, end)
    return Block(closer.end() if closer else end, (Call(name.group(1), arguments),))


FORMATS = (
    Format("functionary", (V3,), read_v3, Where.LINE, follow_v3),
    Format("functionary", (V2,), read_v2),
)
