"""MiniMax M3: nested tags, each behind `]<]minimax[>[`, typed by the schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .base import MAX_CALLS, Block, Call, Format, Source
from .literals import MAX_NESTING, dumps, skip_space
from .typed import typed, types_of

SPACE = "]<]minimax[>["
OPENER = SPACE + "<tool_call>"
CLOSER = SPACE + "</tool_call>"

_NESTED = 50_000  # what a call that is nested too deeply costs of the budget

_INVOKE = re.compile(
    re.escape(SPACE) + r"<invoke\s++name\s*+=\s*+[\"']?+([^\"'>\n]{1,200})[\"']?\s*+>"
)
_TAG = re.compile(re.escape(SPACE) + r"<(/?)([^<>\n]{1,200})>")
_BEGUN = re.compile(re.escape(SPACE) + r"<[^/]")


class _Unclosed(Exception):
    """Nothing closes the last value, which may be half of it, or the last tag."""


def read(src: Source, start: int) -> Block | None:
    """The calls of one block."""
    end = start + len(OPENER)
    calls: list[Call] = []
    while len(calls) < MAX_CALLS:
        match = _INVOKE.match(src.text, skip_space(src.text, end))
        if match is None:
            break
        name = match.group(1).strip()
        schema = src.tools.schema(name)
        try:
            value, end = _element(src.text, match.end(), schema, schema, 0)
        except _Unclosed:
            end = len(src.text)
            calls.append(Call(name, src.text[match.start() :]))  # JSON in it is but a value
            break
        except ValueError:
            src.spend(_NESTED)
            break
        calls.append(Call(name, dumps(value if isinstance(value, dict) else {})))
    if not calls:
        return None
    at = skip_space(src.text, end)
    return Block(at + len(CLOSER) if src.text.startswith(CLOSER, at) else end, tuple(calls))


def _element(
    text: str, pos: int, schema: Any, root: Mapping[str, Any], depth: int
) -> tuple[Any, int]:
    """The value inside the tag that opened before `pos`, and the index after its closing tag."""
    if depth > MAX_NESTING:
        raise ValueError("nested too deeply")
    children: list[tuple[str, Any]] = []
    end = pos
    while True:
        tag = _TAG.search(text, end)
        if tag is None and (depth or _BEGUN.match(text, skip_space(text, end))):
            raise _Unclosed
        if tag is None:
            return _value(text[end:], children, schema, root), len(text)
        if tag.group(1):
            # The call's own end also ends a value whose closing tag is missing.
            stop = tag.start() if tag.group(2) == "tool_call" else tag.end()
            return _value(text[end : tag.start()], children, schema, root), stop
        key = tag.group(2).strip()
        value, end = _element(text, tag.end(), _child(schema, key), root, depth + 1)
        children.append((key, value))


def _child(schema: Any, key: str) -> Any:
    if not isinstance(schema, Mapping):
        return None
    if "array" in types_of(schema, {}) and key == "item":
        return schema.get("items")
    properties = schema.get("properties")
    return properties.get(key) if isinstance(properties, Mapping) else None


def _value(text: str, children: list[tuple[str, Any]], schema: Any, root: Mapping[str, Any]) -> Any:
    allowed = types_of(schema, root)
    if not children:
        if not text.strip() and allowed & {"array", "object"}:
            return [] if "array" in allowed else {}
        return typed(text, schema, root) if schema is not root else {}
    if all(key == "item" for key, _ in children) and "object" not in allowed:
        return [value for _, value in children]
    members: dict[str, Any] = {}
    for key, value in children:
        if key not in members:
            members[key] = value
        elif isinstance(members[key], list):
            members[key].append(value)
        else:
            members[key] = [members[key], value]
    return members


FORMATS = (Format("minimax_m3", (OPENER,), read),)
