"""JSON calls without a marker (Llama 3, xLAM, small models): `{"name": …, "arguments": {…}}`."""

from __future__ import annotations

import re

from app.tool_calls.formats.base import Block, Call, Format, Source, ToolSet, Verdict, Where
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
_FIRST_KEYS = (*NAME_KEYS, *ARGUMENT_KEYS, *NESTED_KEYS, *LIST_KEYS, *_ID_KEYS, "type")
_KEY = re.compile(r"\s*([\"'])([^\"'\\\n]{0,40})(\1\s*(:\s*)?)?")
_STRING = re.compile(r"[\"']([^\"'\\\n]{0,200})([\"'])?")
_ID = re.compile(rf"\s*([\"'])(?:{'|'.join(_ID_KEYS)})\1\s*:\s*([\"'])[^\"'\\\n]{{0,200}}\2\s*,")
_TYPES = ("function", "function_call", "tool_call", "tool_use")
_TRAILING = ("]", "</tool_call>")


def follow(text: str, pos: int, tools: ToolSet) -> Verdict:
    """What stands after `{`, and an id: a key that calls have, and as a name one of the tools."""
    identified = _ID.match(text, pos)
    pos = identified.end() if identified else pos
    key = _KEY.match(text, pos)
    if key is None:
        return Verdict.MAYBE if skip_space(text, pos) == len(text) else Verdict.NO
    name, closed, colon = key.group(2, 3, 4)
    at = key.end()
    if closed is None:
        possible = at == len(text) and any(item.startswith(name) for item in _FIRST_KEYS)
        return Verdict.MAYBE if possible else Verdict.NO
    if name not in _FIRST_KEYS:
        return Verdict.NO
    if at == len(text):
        return Verdict.MAYBE
    if colon is None:
        return Verdict.NO
    return _follow_value(text, at, name, tools)


def _follow_value(text: str, pos: int, key: str, tools: ToolSet) -> Verdict:
    if text[pos] in "{[":
        nests = (*ARGUMENT_KEYS, *NESTED_KEYS) if text[pos] == "{" else LIST_KEYS
        return Verdict.YES if key in nests else Verdict.NO
    value = _STRING.match(text, pos)
    if value is None:
        return Verdict.NO
    word, closed = value.group(1), value.group(2)
    if key in _ID_KEYS:  # it alone says nothing, and much data begins with one
        end = skip_space(text, value.end()) if closed else value.end()
        return Verdict.MAYBE if end == len(text) else Verdict.NO
    if key in ARGUMENT_KEYS:
        return Verdict.YES
    if closed is None and value.end() < len(text):
        return Verdict.NO
    if key == "type":
        possible = word in _TYPES if closed else any(item.startswith(word) for item in _TYPES)
    else:
        possible = tools.resolve(word) is not None if closed else tools.could_start(word)
    if not possible:
        return Verdict.NO
    return Verdict.YES if closed else Verdict.MAYBE


def follow_list(text: str, pos: int, tools: ToolSet) -> Verdict:
    """What stands after `[`: an object that could be a call."""
    at = skip_space(text, pos)
    if at == len(text):
        return Verdict.MAYBE
    return follow(text, at + 1, tools) if text[at] == "{" else Verdict.NO


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
    """A reply of nothing but calls, where some, of tools without parameters, are a name alone."""

    def shape(members: Members) -> list[Call]:
        name = members["name"].value if members.keys() == {"name"} else None
        if isinstance(name, str) and not src.tools.properties(name):
            return [Call(name, "{}")]
        return bare_envelope(members)

    found = read_calls(src, start, shape=shape)
    return found if found is not None and not src.text[found[1] :].strip() else None


FORMATS = (
    Format("bare_json", ("{",), read, Where.JSON, follow),
    Format("bare_json", ("[",), read, Where.JSON, follow_list),
)
