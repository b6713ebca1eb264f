"""Kimi K2: `functions.name:0<|tool_call_argument_begin|>{…}`; Kimi K3: tags with attributes."""

from __future__ import annotations

import json
import re

from app.tool_calls.formats.base import MAX_CALLS, Block, Call, Format, Source
from app.tool_calls.formats.json_calls import object_text
from app.tool_calls.formats.literals import dumps, skip_space
from app.tool_calls.formats.typed import typed

SECTION = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
K2_CALL = "<|tool_call_begin|>"
K3_TOOLS = "<|open|>tools<|sep|>"
K3_CALL = "<|open|>call "

_SECTION = re.compile(r"<\|tool_calls?_section_begin\|>")
_SECTION_END = re.compile(r"\s*<\|tool_calls?_section_end\|>")
_HEAD = re.compile(
    r"\s*<\|tool_call_begin\|>\s*(?:functions\.)?([^\s<>]{1,200}?)(?::\d+)?\s*"
    r"<\|tool_call_argument_begin\|>"
)
_CALL_END = re.compile(r"\s*<\|tool_call_end\|>")
_STOP = ("<|tool_call_end|>", K2_CALL, "<|tool_calls_section_end|>")

_K3_OPEN = re.compile(r"\s*<\|open\|>(call|argument|json)((?:\s+\w+=\"[^\"]*\")*)\s*<\|sep\|>")
_ATTRIBUTE = re.compile(r"(?<!\w)(\w++)=\"([^\"]*)\"")
_K3_CLOSE = "<|close|>{}<|sep|>"
_K3_BEGUN = "<|open|>argument "


def read_k2(src: Source, start: int) -> Block | None:
    """All calls of a section, or calls without one."""
    section = _SECTION.match(src.text, start)
    end = section.end() if section else start
    calls: list[Call] = []
    while len(calls) < MAX_CALLS and (head := _HEAD.match(src.text, end)):
        arguments, end = object_text(src, head.end(), _STOP)
        calls.append(Call(head.group(1), arguments))
        closer = _CALL_END.match(src.text, end)
        end = closer.end() if closer else end
    if not calls:
        return None
    closer = _SECTION_END.match(src.text, end)
    return Block(closer.end() if closer else end, tuple(calls))


def read_k3(src: Source, start: int) -> Block | None:
    """The calls of a tools channel."""
    end = start + len(K3_TOOLS) if src.text.startswith(K3_TOOLS, start) else start
    calls: list[Call] = []
    while len(calls) < MAX_CALLS:
        opened = _K3_OPEN.match(src.text, end)
        if opened is None or opened.group(1) != "call":
            break
        name = _attributes(opened.group(2)).get("tool", "")
        arguments, end = _k3_arguments(src, name, opened.end())
        calls.append(Call(name, arguments))
        end = _skip(src.text, end, _K3_CLOSE.format("call"))
    if not calls:
        return None
    return Block(_skip(src.text, end, _K3_CLOSE.format("tools")), tuple(calls))


def _k3_arguments(src: Source, name: str, pos: int) -> tuple[str, int]:
    values: dict[str, object] = {}
    schema, properties = src.tools.schema(name), src.tools.properties(name)
    end = pos
    while (opened := _K3_OPEN.match(src.text, end)) is not None and opened.group(1) != "call":
        closer = _K3_CLOSE.format(opened.group(1))
        stop = src.find_first((closer, _K3_CLOSE.format("call")), opened.end())
        raw = src.text[opened.end() : stop]
        end = _skip(src.text, stop, closer)
        if opened.group(1) == "json":
            return raw.strip() or "{}", end
        if stop == len(src.text):
            return src.text[pos:], stop  # nothing closes the last value: it may be half of it
        attributes = _attributes(opened.group(2))
        key = attributes.get("key", "")
        values[key] = _k3_value(raw, attributes.get("type"), properties.get(key), schema)
    if opened is None and src.text.startswith(_K3_BEGUN, skip_space(src.text, end)):
        return src.text[pos:], len(src.text)  # one more argument had begun
    return dumps(values), end


def _k3_value(raw: str, kind: str | None, schema: object, root: object) -> object:
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


FORMATS = (
    Format("kimi_k2", (*SECTION, K2_CALL), read_k2),
    Format("kimi_k3", (K3_TOOLS, K3_CALL), read_k3),
)
