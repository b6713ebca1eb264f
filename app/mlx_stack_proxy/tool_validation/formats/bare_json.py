"""Read JSON calls without a mark, bare or in a code fence, that are the whole reply.

The form is ``{"name": …, "arguments": {…}}`` (Llama 3, xLAM, small models) or a variant of it. One
in broken JSON is a call, too, with raw text as its arguments: the check mends it or reports it.
A small model may also repeat the definitions of its tools, in ``<tools>``, and write calls there.
"""

from __future__ import annotations

import re
from functools import partial

from ...wire.call import Call
from ..tools import ToolSet
from .base import (
    Block,
    Format,
    Reading,
    Source,
    Where,
    begins_reply,
    end_or,
    json_members,
    read_all,
    skip_space,
)
from .json_calls import (
    ARGUMENT_KEYS,
    CALL_TYPES,
    LIST_KEYS,
    NAME_KEYS,
    NESTED_KEYS,
    Members,
    bare_envelope,
    is_definition,
    read_calls,
)
from .python_calls import FENCES

_ID_KEYS = ("id", "tool_call_id", "call_id")
_FIRST_KEYS = (*NAME_KEYS, *ARGUMENT_KEYS, *NESTED_KEYS, *LIST_KEYS, *_ID_KEYS, "type")
# The first member: its key, and a string with which its value begins. The text may break off after
# the key.
_HEAD = re.compile(
    r"""\{{0,3}+\s*+(["'])(?P<key>[^"'\\\n]{0,40}+)\1\s*+(?::\s*+(?:(["'])(?P<word>[^"'\\\n]{0,200}+)\3)?+)?+"""
)
_WAITS = 240  # characters of an incomplete key after which it is given up
# What must follow a name that no tool has, apart from white space.
_BEHIND_UNKNOWN = tuple(
    f',"{key}":{opening}' for key in ("arguments", "parameters") for opening in ("{", '"{')
)
_SPACE_OR_QUOTE = str.maketrans({**dict.fromkeys(" \t\r\n"), "'": '"'})
_PLAIN = ("```", "```json", "```xml")  # general fences, in which any JSON may stand
_BEGUN = re.compile(r"[\s,;]*+(?:(\{)|```[^\n]*+\n?)")
_STOP = re.compile("```|</tool_call>")
_TOOLS = "<tools>"
# Some put each object there into an element of its own.
_NEXT = re.compile(r"(?:[\s,]|</?function>)*+(?=\{)")
_IN_TOOLS = re.compile(r"\s*+<function>")
_TOOLS_END = re.compile(r"(?:\s*+</function>)?+\s*+</tools>")
_CLOSER = re.compile(r"(?:\s*+\])?+(?:\s*+</tool_call>)?+(?:\s*+`{3,}+[ \t]*+(?=\n|\Z))?+")


def follow(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a call may follow ``{``: a call's key, and after a name that is no tool's, another.

    Only ``name`` may hold a name that is no tool's.
    """
    head = _HEAD.match(text, pos)
    if head is None:
        return len(text) - pos < _WAITS and text[pos:].lstrip(" \t\r\n{")[:1] in ("", '"', "'")
    key, word = head["key"], head["word"]
    if word is None or key not in (*NAME_KEYS, "type"):
        return key in _FIRST_KEYS
    if key == "type" or tools.tool_named(word) is not None:
        return key != "type" or word in CALL_TYPES
    begun = text[head.end() : head.end() + _WAITS].translate(_SPACE_OR_QUOTE)
    return key == "name" and any(whole.startswith(begun[: len(whole)]) for whole in _BEHIND_UNKNOWN)


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

    def read_one(pos: int) -> Reading:
        reading = read_calls(src, pos, _STOP, partial(_shape, src.tools))
        return reading and (reading[0], end_or(_CLOSER.match(src.text, reading[1]), reading[1]))

    calls, end = read_all(read_one, start)
    marked = src.text.startswith(FENCES, start)
    if not calls or not (marked or _is_whole(src, start, end)):
        return None
    return Block(end, tuple(calls))


def _shape(tools: ToolSet, members: Members) -> list[Call]:
    return [] if is_definition(tools, members) else bare_envelope(members)


def _read_in_tools(src: Source, start: int) -> Block | None:
    """Read the calls among the definitions in ``<tools>``, if that is the whole reply."""

    def read_one(pos: int) -> Reading:
        begun = _NEXT.match(src.text, pos)
        reading = json_members(src, begun.end()) if begun else None
        return reading and (_shape(src.tools, reading[0]), reading[1])

    calls, end = read_all(read_one, start + len(_TOOLS))
    end = end_or(_TOOLS_END.match(src.text, end), end)
    return Block(end, tuple(calls)) if calls and src.is_whole_reply(start, end) else None


def _follow_in_tools(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether an object that may be a call follows ``<tools>``, or an element's begin there."""
    rest = text[pos : pos + _WAITS].lstrip()
    if "<function>".startswith(rest):
        return True
    return follow_list(text, end_or(_IN_TOOLS.match(text, pos), pos), tools)


def _is_whole(src: Source, start: int, end: int) -> bool:
    """Whether these calls are the whole reply; one more call after them may have been cut off."""
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
    Format("bare_json", (_TOOLS,), _read_in_tools, Where.JSON, _follow_in_tools),
)
