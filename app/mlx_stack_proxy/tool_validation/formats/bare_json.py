"""JSON calls without a mark, bare or in a fence, where they are the whole reply.

`{"name": …, "arguments": {…}}` (Llama 3, xLAM, small models) and its relatives. One that is no JSON
is a call, too, with what was written as its arguments: the check mends it, or says what is wrong.
"""

from __future__ import annotations

import re

from .base import MAX_CALLS, Begins, Block, Call, Format, Source, SpelledTools, Where, begins_reply
from .json_calls import (
    ARGUMENT_KEYS,
    LIST_KEYS,
    NAME_KEYS,
    NESTED_KEYS,
    bare_envelope,
    close,
    is_definition,
    read_calls,
)
from .literals import skip_space
from .python_calls import FENCES

_ID_KEYS = ("id", "tool_call_id", "call_id")
_FIRST_KEYS = (*NAME_KEYS, *ARGUMENT_KEYS, *NESTED_KEYS, *LIST_KEYS, *_ID_KEYS, "type")
_KEY = re.compile(r"\s*+([\"'])([^\"'\\\n]{0,40}+)(\1\s*+(:\s*+)?)?")
_STRING = re.compile(r"[\"']([^\"'\\\n]{0,200}+)([\"'])?")
_ID = re.compile(
    rf"\s*+([\"'])(?:{'|'.join(_ID_KEYS)})\1\s*+:\s*+([\"'])[^\"'\\\n]{{0,200}}+\2\s*+,"
)
_TYPES = ("function", "function_call", "tool_call", "tool_use")
_PLAIN = ("```", "```json", "```xml")  # fences that are no format's own
_FENCED = re.compile(r"\s*+```([^\n`]*+)\n\s*+(?=[\[{])")
_BEGUN = re.compile(r"[\s,;]*+(?:(\{)|```[^\n]*+\n?)")
_STOP = ("```", "</tool_call>")
_CLOSER = re.compile(r"\s*+(?:</tool_call>\s*+)?+(?:`{3,}+[ \t]*+(?=\n|\Z)|\Z)")


def follow(text: str, pos: int, tools: SpelledTools) -> Begins:
    """What stands after `{`, and an id: a key that calls have, and as a name one of the tools."""
    identified = _ID.match(text, pos)
    pos = identified.end() if identified else pos
    key = _KEY.match(text, pos)
    if key is None:
        return Begins.MAYBE if skip_space(text, pos) == len(text) else Begins.NO
    name, closed, colon = key.group(2, 3, 4)
    at = key.end()
    if closed is None:
        possible = at == len(text) and any(item.startswith(name) for item in _FIRST_KEYS)
        return Begins.MAYBE if possible else Begins.NO
    if name not in _FIRST_KEYS:
        return Begins.NO
    if at == len(text):
        return Begins.MAYBE
    return Begins.NO if colon is None else _follow_value(text, at, name, tools)


def _follow_value(text: str, pos: int, key: str, tools: SpelledTools) -> Begins:
    if text[pos] in "{[":
        nests = (*ARGUMENT_KEYS, *NESTED_KEYS) if text[pos] == "{" else LIST_KEYS
        return Begins.YES if key in nests else Begins.NO
    value = _STRING.match(text, pos)
    if value is None:
        return Begins.NO
    word, closed = value.group(1, 2)
    if key in _ID_KEYS:  # it alone says nothing, and much data begins with one
        end = skip_space(text, value.end()) if closed else value.end()
        return Begins.MAYBE if end == len(text) else Begins.NO
    if key in ARGUMENT_KEYS:
        return Begins.YES
    if closed is None and value.end() < len(text):
        return Begins.NO
    if key == "type":
        possible = any(one == word or (not closed and one.startswith(word)) for one in _TYPES)
    else:
        possible = tools.resolve(word) is not None if closed else tools.could_start(word)
    if not possible:
        return Begins.NO
    return Begins.YES if closed else Begins.MAYBE


def follow_list(text: str, pos: int, tools: SpelledTools) -> Begins:
    """What stands after `[`, or in a fence: an object that could be a call."""
    at = skip_space(text, pos)
    while at < len(text) and text[at] == "[":
        at = skip_space(text, at + 1)
    if at == len(text):
        return Begins.MAYBE
    return follow(text, at + 1, tools) if text[at] == "{" else Begins.NO


def read(src: Source, start: int) -> Block | None:
    """One object, several behind each other, or a list."""
    found = read_calls(src, start, _STOP, bare_envelope)
    if found is None or all(is_definition(src.tools, call) for call in found[0]):
        return None
    end = close(src.text, found[1], ("]", "</tool_call>"))
    return Block(end, tuple(found[0])) if _is_whole(src, start, end) else None


def _is_whole(src: Source, start: int, end: int) -> bool:
    """Whether these calls are the whole reply, but for one more that was cut in the midst."""
    begun = _BEGUN.match(src.text, end)
    if begun is None:
        return src.is_whole_reply(start, end)
    judge = follow if begun[1] == "{" else follow_list
    half = judge(src.text, begun.end(), src.tools) is not Begins.NO
    return (
        half and "```" not in src.text[begun.end() :] and begins_reply(src.text, start, src.floor)
    )


def read_fence(src: Source, start: int) -> Block | None:
    """The calls of fences; of such as are no format's own, where they are the whole reply."""
    calls: list[Call] = []
    end, marked = start, True
    while len(calls) < MAX_CALLS and (fence := _FENCED.match(src.text, end)) is not None:
        found = read_calls(src, fence.end(), _STOP, bare_envelope)
        if found is None or all(is_definition(src.tools, call) for call in found[0]):
            break
        closed = found[1] if src.text[found[1] - 1] == "`" else -1
        if closed < 0:  # `read_calls` takes a closing fence along
            closer = _CLOSER.match(src.text, found[1])
            if closer is None:
                break
            closed = closer.end()
        marked = marked and "```" + fence[1].strip() not in _PLAIN
        calls += found[0]
        end = closed
    if not calls or not (marked or _is_whole(src, start, end)):
        return None
    return Block(end, tuple(calls))


FORMATS = (
    Format("json_fence", (*_PLAIN, *FENCES), read_fence, Where.FENCE, follow_list),
    Format("bare_json", ("{",), read, Where.JSON, follow),
    Format("bare_json", ("[",), read, Where.JSON, follow_list),
)
