"""JSON calls without a mark, bare or in a fence, where they are the whole reply.

`{"name": …, "arguments": {…}}` (Llama 3, xLAM, small models) and its relatives; in a fence also
calls in the tags of other formats.
"""

from __future__ import annotations

import re

from . import tagged
from .base import (
    MAX_CALLS,
    Begins,
    Block,
    Call,
    Format,
    Source,
    SpelledTools,
    Where,
    begins_reply,
    one_of,
)
from .json_calls import (
    ARGUMENT_KEYS,
    LIST_KEYS,
    NAME_KEYS,
    NESTED_KEYS,
    Members,
    bare_envelope,
    close,
    envelope,
    is_definition,
    read_calls,
)
from .literals import skip_space

_ID_KEYS = ("id", "tool_call_id", "call_id")
_FIRST_KEYS = (*NAME_KEYS, *ARGUMENT_KEYS, *NESTED_KEYS, *LIST_KEYS, *_ID_KEYS, "type", "role")
_KEY = re.compile(r"\s*+([\"'])([^\"'\\\n]{0,40}+)(\1\s*+(:\s*+)?)?")
_STRING = re.compile(r"[\"']([^\"'\\\n]{0,200}+)([\"'])?")
_ID = re.compile(
    rf"\s*+([\"'])(?:{'|'.join(_ID_KEYS)})\1\s*+:\s*+([\"'])[^\"'\\\n]{{0,200}}+\2\s*+,"
)
_VALUES = {"type": ("function", "function_call", "tool_call", "tool_use"), "role": ("assistant",)}
_TRAILING = ("]", "</tool_call>")
_PLAIN = ("", "json", "xml")  # fences that are no format's own
_OWN = ("tool_code", "tool_call", "tool_calls", "tool_use", "tool", "function_call")
FENCES = tuple("```" + language for language in (*_PLAIN, *_OWN))
_BEGUN = re.compile(r"[\s,;]*+(?:(\{)|```[^\n]*+\n?)")
_LINE = re.compile(r"[^\n]*+\n")
_CLOSER = re.compile(r"\s*+(?:`{3,}+|~{3,}+)[ \t]*+(?=\n|\Z)")
_TAGGED_JSON = re.compile(r"<(tool_call|function_call|response)>\s*+(?=[\[{])")


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
    word, closed = value.group(1), value.group(2)
    if key in _ID_KEYS:  # it alone says nothing, and much data begins with one
        end = skip_space(text, value.end()) if closed else value.end()
        return Begins.MAYBE if end == len(text) else Begins.NO
    if key in ARGUMENT_KEYS:
        return Begins.YES
    if closed is None and value.end() < len(text):
        return Begins.NO
    if key in _VALUES:
        possible = any(one == word or (not closed and one.startswith(word)) for one in _VALUES[key])
    else:
        possible = tools.resolve(word) is not None if closed else tools.could_start(word)
    if not possible:
        return Begins.NO
    return Begins.YES if closed else Begins.MAYBE


def follow_list(text: str, pos: int, tools: SpelledTools) -> Begins:
    """What stands after `[`: an object that could be a call."""
    at = skip_space(text, pos)
    if at == len(text):
        return Begins.MAYBE
    return follow(text, at + 1, tools) if text[at] == "{" else Begins.NO


def follow_fence(text: str, pos: int, tools: SpelledTools) -> Begins:
    """After the opening line: JSON that could be a call, or its tag."""
    at = skip_space(text, pos)
    if at == len(text):
        return Begins.MAYBE
    if text[at] == "<":
        return one_of(text, at, ("<tool_call>", "<function_call>", "<function=", "<response>"))
    if text[at] == "{":
        return follow(text, at + 1, tools)
    return follow_list(text, at + 1, tools) if text[at] == "[" else Begins.NO


def read(src: Source, start: int) -> Block | None:
    """One object, several behind each other, or a list; names alone of tools that need nothing."""

    def shape(members: Members) -> list[Call]:
        name = members["name"] if members.keys() == {"name"} else None
        if isinstance(name, str) and not src.tools.properties(name):
            return [Call(name, "{}")]
        return bare_envelope(members)

    found = read_calls(src, start, shape=shape)
    if found is None or not _are_calls(src, found[0], src.text.startswith("[", start)):
        return None
    end = close(src.text, found[1], _TRAILING)
    return Block(end, tuple(found[0])) if _is_whole(src, start, end) else None


def _is_whole(src: Source, start: int, end: int) -> bool:
    """Whether these calls are the whole reply, but for one more that was cut in the midst."""
    begun = _BEGUN.match(src.text, end)
    if begun is None:
        return src.is_whole_reply(start, end)
    at = begun.end()
    judge = follow if begun[1] == "{" else follow_fence
    half = judge(src.text, at, src.tools) is not Begins.NO and "```" not in src.text[at:]
    return half and begins_reply(src.text, start, src.floor)


def _are_calls(src: Source, calls: list[Call], listed: bool) -> bool:
    """Not tools' definitions, nor names alone: more than one are a list of anything."""
    if all(is_definition(src.tools, call) for call in calls):
        return False
    return (len(calls) == 1 and not listed) or any(
        call.arguments != "{}" or not src.tools.takes(call.name, ()) for call in calls
    )


def read_fence(src: Source, start: int) -> Block | None:
    """The calls of fences; of such as are no format's own, where they are the whole reply."""
    calls: list[Call] = []
    end = at = start
    marked = True
    while len(calls) < MAX_CALLS and src.text.startswith("```", at):
        found = _read_one(src, at)
        if found is None:
            break
        marked = marked and src.text[at:].partition("\n")[0].strip("` \t\r") not in _PLAIN
        calls += found[0]
        end = found[1]
        at = skip_space(src.text, end)
    if not calls or not (marked or _is_whole(src, start, end)):
        return None
    return Block(end, tuple(calls))


def _read_one(src: Source, start: int) -> tuple[list[Call], int] | None:
    """The calls of one fence that holds nothing else, and the index after it."""
    line = _LINE.match(src.text, start)
    if line is None:
        return None
    at = skip_space(src.text, line.end())
    tagged_calls = src.text.startswith("<", at)
    found = _tagged(src, at) if tagged_calls else read_calls(src, at, shape=bare_envelope)
    if found is None or all(is_definition(src.tools, call) for call in found[0]):
        return None
    if src.text[found[1] - 1] == "`":  # `read_calls` takes the closing fence along
        return found
    closed = _CLOSER.match(src.text, found[1])
    if closed is None and src.text[found[1] :].strip():
        return None
    return found[0], closed.end() if closed else len(src.text)


def _tagged(src: Source, at: int) -> tuple[list[Call], int] | None:
    tag = _TAGGED_JSON.match(src.text, at)
    if tag is None:
        block = tagged.read_qwen(src, at)
        return (list(block.calls), block.end) if block else None
    closer = f"</{tag.group(1)}>"
    found = read_calls(src, tag.end(), (closer,), envelope)
    return (found[0], close(src.text, found[1], (closer,))) if found else None


FORMATS = (
    Format("json_fence", FENCES, read_fence, Where.FENCE, follow_fence),
    Format("bare_json", ("{",), read, Where.JSON, follow),
    Format("bare_json", ("[",), read, Where.JSON, follow_list),
)
