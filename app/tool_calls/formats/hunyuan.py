"""Hunyuan A13B, Jamba, MiniMax M1: `<tool_calls>` around JSON; Hunyuan 3 puts GLM's tags there."""

from __future__ import annotations

from app.tool_calls.formats import glm, hermes
from app.tool_calls.formats.base import (
    MAX_CALLS,
    Begins,
    Block,
    Call,
    Format,
    Source,
    SpelledTools,
    Where,
)
from app.tool_calls.formats.json_calls import close, json_block
from app.tool_calls.formats.literals import skip_space

OPENER = "<tool_calls>"
CLOSER = "</tool_calls>"


def follow(text: str, pos: int, tools: SpelledTools) -> Begins:
    """JSON, a fence around it, or a `<tool_call>`."""
    at = skip_space(text, pos)
    if at == len(text):
        return Begins.MAYBE
    if text[at] in "[{`":
        return Begins.YES
    return hermes.one_of(text, at, (hermes.OPENER,))


def read_tagged(src: Source, start: int) -> Block | None:
    """`<tool_call>` blocks inside `<tool_calls>`."""
    calls: list[Call] = []
    end = start + len(OPENER)
    while len(calls) < MAX_CALLS and src.text.startswith(hermes.OPENER, skip_space(src.text, end)):
        found = glm.read_body(src, skip_space(src.text, end) + len(hermes.OPENER))
        if found is None:
            break
        calls.append(found[0])
        end = found[1]
    return Block(close(src.text, end, (CLOSER,)), tuple(calls)) if calls else None


FORMATS = (
    Format("hunyuan_json", (OPENER,), json_block(CLOSER, skip=len(OPENER)), Where.TAG, follow),
    Format("hunyuan_v3", (OPENER,), read_tagged, Where.TAG, follow),
)
