"""Hermes, Qwen 2.5/3, ERNIE, Granite 3.1 and others: `<tool_call>{"name": …}</tool_call>`."""

from __future__ import annotations

import re

from app.tool_calls.formats.base import Begins, Format, SpelledTools, Where
from app.tool_calls.formats.json_calls import envelope_or_name, json_block
from app.tool_calls.formats.literals import skip_space

OPENER = "<tool_call>"
CLOSER = "</tool_call>"

_NAME = re.compile(r"[^\s<>(){}\[\]\"'`]+")
_KEY = re.compile(r"[\w.-]*")
_AFTER_TAG = ("<function=", "<function name=", "<invoke ")
_AFTER_NAME = ("<arg_key", "<tool_sep", "</tool_call>", "<longcat_arg_key", "</longcat_tool_call>")


def follow(text: str, pos: int, tools: SpelledTools) -> Begins:
    """JSON, a tag of the formats that share this one, or a name and what can follow a name."""
    at = skip_space(text, pos)
    if at == len(text):
        return Begins.MAYBE
    if text[at] in "[{\"'`":
        return Begins.YES
    if text[at] == "<":
        return one_of(text, at, _AFTER_TAG)
    name = _NAME.match(text, at)
    if name is None:
        return Begins.NO
    at = skip_space(text, name.end())
    if at == len(text):
        return Begins.MAYBE
    if text[at] in "({[":
        return Begins.YES
    if text[at] == "<":
        return one_of(text, at, _AFTER_NAME)
    key = _KEY.match(text, at)
    at = key.end() if key else at
    if at == len(text):
        return Begins.MAYBE
    return Begins.YES if text[at] == "=" and key and key.group() else Begins.NO


def one_of(text: str, pos: int, wanted: tuple[str, ...]) -> Begins:
    """Whether one of `wanted` stands at `pos`, or may once more text has come."""
    if text.startswith(wanted, pos):
        return Begins.YES
    rest = text[pos : pos + max(map(len, wanted))]
    if pos + len(rest) == len(text) and any(item.startswith(rest) for item in wanted):
        return Begins.MAYBE
    return Begins.NO


FORMAT = Format(
    "hermes_json",
    (OPENER,),
    json_block(CLOSER, stop=(OPENER,), shape=envelope_or_name, skip=len(OPENER)),
    Where.TAG,
    follow,
)
