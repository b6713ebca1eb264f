"""JSON calls without a marker (Llama 3, xLAM, small models): `{"name": …, "arguments": {…}}`."""

from __future__ import annotations

import re

from app.tool_calls.formats.base import Begins, Block, Call, Format, Source, SpelledTools, Where
from app.tool_calls.formats.context import lead_of
from app.tool_calls.formats.json_calls import (
    ARGUMENT_KEYS,
    LIST_KEYS,
    NAME_KEYS,
    NESTED_KEYS,
    Members,
    bare_envelope,
    close,
    is_definition,
    read_calls,
)
from app.tool_calls.formats.literals import skip_space

_ID_KEYS = ("id", "tool_call_id", "call_id")
_FIRST_KEYS = (*NAME_KEYS, *ARGUMENT_KEYS, *NESTED_KEYS, *LIST_KEYS, *_ID_KEYS, "type", "role")
_KEY = re.compile(r"\s*([\"'])([^\"'\\\n]{0,40})(\1\s*(:\s*)?)?")
_STRING = re.compile(r"[\"']([^\"'\\\n]{0,200})([\"'])?")
_ID = re.compile(rf"\s*([\"'])(?:{'|'.join(_ID_KEYS)})\1\s*:\s*([\"'])[^\"'\\\n]{{0,200}}\2\s*,")
_TYPES = ("function", "function_call", "tool_call", "tool_use")
_ROLES = ("assistant",)
_TRAILING = ("]", "</tool_call>")


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
    if colon is None:
        return Begins.NO
    return _follow_value(text, at, name, tools)


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
    words = {"type": _TYPES, "role": _ROLES}.get(key)
    if words is not None:
        possible = word in words if closed else any(item.startswith(word) for item in words)
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


def in_prose(members: Members) -> list[Call]:
    """In the middle of a line only the plainest shape counts."""
    plain = "name" in members and ("arguments" in members or "parameters" in members)
    return bare_envelope(members) if plain else []


def read(src: Source, start: int) -> Block | None:
    """One object, several behind each other, or a list."""
    lead = lead_of(src.text, start)
    line = lead.rpartition("\n")[2]
    shape = in_prose if line.strip() else bare_envelope
    found = read_calls(src, start, shape=shape)
    if not lead.strip() and (found is None or src.text[found[1] :].strip()):
        found = _read_names_too(src, start) or found
    if found is None or all(is_definition(src.tools, call) for call in found[0]):
        return None
    return Block(close(src.text, found[1], _TRAILING), tuple(found[0]))


def _read_names_too(src: Source, start: int) -> tuple[list[Call], int] | None:
    """A reply of nothing but calls, of which those of tools without parameters are names alone."""

    def shape(members: Members) -> list[Call]:
        name = members["name"].value if members.keys() == {"name"} else None
        if isinstance(name, str) and not src.tools.properties(name):
            return [Call(name, "{}")]
        return bare_envelope(members)

    found = read_calls(src, start, shape=shape)
    if found is None or src.text[found[1] :].strip():
        return None
    # Names alone, more than one, are a list of anything.
    alone = not src.text.startswith("[", start) and len(found[0]) == 1
    return found if alone or any(call.arguments != "{}" for call in found[0]) else None


FORMATS = (
    Format("bare_json", ("{",), read, Where.JSON, follow),
    Format("bare_json", ("[",), read, Where.JSON, follow_list),
)
