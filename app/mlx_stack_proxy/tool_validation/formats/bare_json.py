"""JSON calls without a mark, bare or in a fence, where they are the whole reply.

`{"name": …, "arguments": {…}}` (Llama 3, xLAM, small models) and its relatives. One that is no JSON
is a call, too, with what was written as its arguments: the check mends it, or says what is wrong.
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
_HEAD = re.compile(
    r"""\s*+(["'])(?P<key>[^"'\\\n]{0,40}+)\1\s*+"""
    r"""(?::\s*+(?:(?P<bracket>[{\[])|(?P<quote>["'])(?:(?P<word>[^"'\\\n]{0,200}+)(?P=quote))?+)?+)?+"""
)
_WAITS = 240  # characters of a first member that may still come
_ID = re.compile(
    rf"\s*+([\"'])(?:{'|'.join(_ID_KEYS)})\1\s*+:\s*+([\"'])[^\"'\\\n]{{0,200}}+\2\s*+,"
)
_PLAIN = ("```", "```json", "```xml")  # fences that are no format's own
_BEGUN = re.compile(r"[\s,;]*+(?:(\{)|```[^\n]*+\n?)")
_STOP = ("```", "</tool_call>")
_CLOSER = re.compile(r"(?:\s*+\])?+(?:\s*+</tool_call>)?+(?:\s*+`{3,}+[ \t]*+(?=\n|\Z))?+")


def follow(text: str, pos: int, tools: ToolSet) -> bool:
    """What stands after `{`, and an id: a key that calls have, and as a name one of the tools."""
    identified = _ID.match(text, pos)
    pos = identified.end() if identified else pos
    comes = len(text) - pos < _WAITS
    head = _HEAD.match(text, pos)
    if head is None:
        return comes and text[pos:].lstrip()[:1] in ("", '"', "'")
    key, bracket, quote, word = head.group("key", "bracket", "quote", "word")
    if bracket:
        nests = (*ARGUMENT_KEYS, *NESTED_KEYS) if bracket == "{" else LIST_KEYS
        return key in nests
    if quote and key in ARGUMENT_KEYS:
        return True
    if key not in _FIRST_KEYS or not (quote or head.end() == len(text)):
        return False
    if word is None or (key in _ID_KEYS and not text[head.end() :].strip()):
        return comes
    known = word in CALL_TYPES if key == "type" else tools.meant(word) is not None
    return known and key not in _ID_KEYS


def follow_list(text: str, pos: int, tools: ToolSet) -> bool:
    """What stands after `[`, or in a fence: an object that could be a call."""
    at = skip_space(text, pos)
    while at < len(text) and text[at] == "[":
        at = skip_space(text, at + 1)
    return at == len(text) or (text[at] == "{" and follow(text, at + 1, tools))


def read(src: Source, start: int) -> Block | None:
    """Objects, lists and fences behind each other; where no fence is a format's own, as the whole.

    What only tells of a tool, and what is not a call, ends them.
    """
    calls: list[Call] = []
    end = start
    while len(calls) < MAX_CALLS:
        found = read_calls(src, end, _STOP, bare_envelope)
        if found is None or all(is_definition(src.tools, call) for call in found[0]):
            break
        calls += found[0]
        end = behind(_CLOSER.match(src.text, found[1]), found[1])
    marked = src.text.startswith(FENCES, start)
    if not calls or not (marked or _is_whole(src, start, end)):
        return None
    return Block(end, tuple(calls))


def _is_whole(src: Source, start: int, end: int) -> bool:
    """Whether these calls are the whole reply, but for one more that was cut in the midst."""
    begun = _BEGUN.match(src.text, end)
    if begun is None:
        return src.is_whole_reply(start, end)
    judge = follow if begun[1] == "{" else follow_list
    half = judge(src.text, begun.end(), src.tools)
    return (
        half and "```" not in src.text[begun.end() :] and begins_reply(src.text, start, src.floor)
    )


FORMATS = (
    Format("json_fence", (*_PLAIN, *FENCES), read, Where.FENCE, follow_list),
    Format("bare_json", ("{",), read, Where.JSON, follow),
    Format("bare_json", ("[",), read, Where.JSON, follow_list),
)
