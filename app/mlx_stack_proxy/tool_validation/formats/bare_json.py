"""Read JSON calls without a mark, bare or in a code fence, that are the whole reply.

The form is ``{"name": …, "arguments": {…}}`` (Llama 3, xLAM, small models) or a variant of it. One
in broken JSON is a call, too, with raw text as its arguments: the check mends it or reports it.
"""

from __future__ import annotations

import re

from ..tools import ToolSet
from .base import (
    MAX_CALLS,
    Block,
    Call,
    Format,
    Source,
    Where,
    begins_reply,
    behind,
    skip_space,
)
from .json_calls import (
    ARGUMENT_KEYS,
    CALL_TYPES,
    LIST_KEYS,
    NAME_KEYS,
    NESTED_KEYS,
    bare_envelope,
    is_definition,
    read_calls,
)
from .python_calls import FENCES

_ID_KEYS = ("id", "tool_call_id", "call_id")
_FIRST_KEYS = (*NAME_KEYS, *ARGUMENT_KEYS, *NESTED_KEYS, *LIST_KEYS, *_ID_KEYS, "type")
# The first member: its key, and a string with which its value begins. The text may break off behind
# the key.
_HEAD = re.compile(
    r"""\s*+(["'])(?P<key>[^"'\\\n]{0,40}+)\1\s*+(?::\s*+(?:(["'])(?P<word>[^"'\\\n]{0,200}+)\3)?+)?+"""
)
_WAITS = 240  # characters of an incomplete key after which it is given up
_PLAIN = ("```", "```json", "```xml")  # general fences, in which any JSON may stand
_BEGUN = re.compile(r"[\s,;]*+(?:(\{)|```[^\n]*+\n?)")
_STOP = ("```", "</tool_call>")
_CLOSER = re.compile(r"(?:\s*+\])?+(?:\s*+</tool_call>)?+(?:\s*+`{3,}+[ \t]*+(?=\n|\Z))?+")


def follow(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a call may follow ``{``: a call's key, and if that is a name, one of the tools."""
    head = _HEAD.match(text, pos)
    if head is None:
        return len(text) - pos < _WAITS and text[pos:].lstrip()[:1] in ("", '"', "'")
    key, word = head["key"], head["word"]
    if word is not None and key in (*NAME_KEYS, "type"):
        return word in CALL_TYPES if key == "type" else tools.tool_named(word) is not None
    return key in _FIRST_KEYS


def follow_list(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether an object that may be a call follows ``[`` or a fence's opening line."""
    index = skip_space(text, pos)
    while index < len(text) and text[index] == "[":
        index = skip_space(text, index + 1)
    return index == len(text) or (text[index] == "{" and follow(text, index + 1, tools))


def read(src: Source, start: int) -> Block | None:
    """Read objects, lists and fences in a row, up to a tool's definition or any other text.

    They must be the whole reply, unless they begin with a fence for calls such as ``tool_call``.
    """
    calls: list[Call] = []
    end = start
    while len(calls) < MAX_CALLS:
        reading = read_calls(src, end, _STOP, bare_envelope)
        if reading is None or all(is_definition(src.tools, call) for call in reading[0]):
            break
        calls += reading[0]
        end = behind(_CLOSER.match(src.text, reading[1]), reading[1])
    marked = src.text.startswith(FENCES, start)
    if not calls or not (marked or _is_whole(src, start, end)):
        return None
    return Block(end, tuple(calls))


def _is_whole(src: Source, start: int, end: int) -> bool:
    """Whether these calls are the whole reply; one more call behind them may have been cut off."""
    begun = _BEGUN.match(src.text, end)
    if begun is None:
        return src.is_whole_reply(start, end)
    follows = follow if begun[1] == "{" else follow_list
    may_follow = follows(src.text, begun.end(), src.tools)
    return (
        may_follow
        and "```" not in src.text[begun.end() :]
        and begins_reply(src.text, start, src.floor)
    )


FORMATS = (
    Format("json_fence", (*_PLAIN, *FENCES), read, Where.FENCE, follow_list),
    Format("bare_json", ("{",), read, Where.JSON, follow),
    Format("bare_json", ("[",), read, Where.JSON, follow_list),
)
