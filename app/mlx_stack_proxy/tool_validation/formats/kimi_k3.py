"""Kimi K3: tags with attributes, `<|open|>call tool="name"<|sep|>` and one for each argument."""

from __future__ import annotations

import json
import re

from .base import MAX_CALLS, Block, Call, Format, Source
from .literals import dumps, skip_space
from .typed import typed

TOOLS = "<|open|>tools<|sep|>"
CALL = "<|open|>call "

_OPEN = re.compile(r"\s*<\|open\|>(call|argument|json)((?:\s+\w+=\"[^\"]*\")*)\s*<\|sep\|>")
_ATTRIBUTE = re.compile(r"(?<!\w)(\w++)=\"([^\"]*)\"")
_CLOSE = "<|close|>{}<|sep|>"
_BEGUN = "<|open|>argument "


def read(src: Source, start: int) -> Block | None:
    """The calls of a tools channel."""
    end = start + len(TOOLS) if src.text.startswith(TOOLS, start) else start
    calls: list[Call] = []
    while len(calls) < MAX_CALLS:
        opened = _OPEN.match(src.text, end)
        if opened is None or opened.group(1) != "call":
            break
        name = _attributes(opened.group(2)).get("tool", "")
        arguments, end = _arguments(src, name, opened.end())
        calls.append(Call(name, arguments))
        end = _skip(src.text, end, _CLOSE.format("call"))
    if not calls:
        return None
    return Block(_skip(src.text, end, _CLOSE.format("tools")), tuple(calls))


def _arguments(src: Source, name: str, pos: int) -> tuple[str, int]:
    values: dict[str, object] = {}
    schema, properties = src.tools.schema(name), src.tools.properties(name)
    end = pos
    while (opened := _OPEN.match(src.text, end)) is not None and opened.group(1) != "call":
        closer = _CLOSE.format(opened.group(1))
        stop = src.find_first((closer, _CLOSE.format("call")), opened.end())
        raw = src.text[opened.end() : stop]
        end = _skip(src.text, stop, closer)
        if opened.group(1) == "json":
            return raw.strip() or "{}", end
        if stop == len(src.text):
            return src.text[pos:], stop  # nothing closes the last value: it may be half of it
        attributes = _attributes(opened.group(2))
        key = attributes.get("key", "")
        values[key] = _value(raw, attributes.get("type"), properties.get(key), schema)
    if opened is None and src.text.startswith(_BEGUN, skip_space(src.text, end)):
        return src.text[pos:], len(src.text)  # one more argument had begun
    return dumps(values), end


def _value(raw: str, kind: str | None, schema: object, root: object) -> object:
    if kind == "string":
        return raw
    if kind is None:
        return typed(raw, schema, root if isinstance(root, dict) else None)
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def _attributes(text: str) -> dict[str, str]:
    return {
        key: value.replace("&quot;", '"').replace("&amp;", "&")
        for key, value in _ATTRIBUTE.findall(text)
    }


def _skip(text: str, pos: int, closer: str) -> int:
    at = skip_space(text, pos)
    return at + len(closer) if text.startswith(closer, at) else pos


FORMATS = (Format("kimi_k3", (TOOLS, CALL), read),)
