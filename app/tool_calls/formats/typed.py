"""Values that a format writes without types (`<parameter=count>5</parameter>`), typed by schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from app.tool_calls.formats.literals import python_literal
from app.tool_calls.json_types import JSON_TYPES, TYPE_ALIASES, is_of_type
from app.tool_calls.references import look_up

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_MISSING = object()
_OPENING = re.compile(r"<([A-Za-z_][\w.-]{0,199})>")
_MAX_DEPTH = 4
_MAX_NESTED = 50_000  # characters of a list or an object of elements


def typed(raw: str, schema: Any, root: Mapping[str, Any] | None = None) -> Any:
    """The value that `raw` stands for under `schema` (a parameter's; `root` for its `$ref`s).

    Text stays text where the schema allows text only; a number, boolean, null, list or object is
    read as JSON or as a Python literal where the schema allows it, or says nothing. What does not
    fit any allowed type stays the text it is, for the validator to judge.
    """
    allowed = types_of(schema, root or {})
    if allowed == {"string"}:
        return raw
    value = _parse(raw.strip(), allowed)
    fits = not allowed or any(is_of_type(value, kind) for kind in allowed)
    if value is _MISSING or not fits:
        return raw
    if isinstance(value, str) and "string" in allowed:
        return raw  # its quotes are part of it
    if "integer" in allowed and "number" not in allowed and isinstance(value, float):
        return int(value)
    return value


def may_be_text(schema: Any, root: Mapping[str, Any]) -> bool:
    """Whether a schema allows text, or does not say."""
    allowed = types_of(schema, root)
    return not allowed or "string" in allowed


def types_of(schema: Any, root: Mapping[str, Any], seen: set[str] | None = None) -> set[str]:
    """The JSON types that a schema allows; empty where it does not say.

    `seen` are the references followed already: each adds its types once, also in a circle.
    """
    if not isinstance(schema, Mapping):
        return set()
    seen = set() if seen is None else seen
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in seen:
            return set()
        seen.add(reference)
        return types_of(look_up(root, reference), root, seen)
    declared = schema.get("type")
    names = declared if isinstance(declared, list) else [declared]
    types = {TYPE_ALIASES.get(name.lower(), "") for name in names if isinstance(name, str)}
    if types:
        return types & JSON_TYPES
    values = schema.get("enum") if isinstance(schema.get("enum"), list) else []
    if "const" in schema:
        values = [schema["const"]]
    types = {_type_name(value) for value in values or ()}
    for key in ("anyOf", "oneOf", "allOf"):
        options = schema.get(key)
        for option in options if isinstance(options, list) else ():
            types |= types_of(option, root, seen)
    if not types and "properties" in schema:
        return {"object"}
    if not types and "items" in schema:
        return {"array"}
    return types


def typed_elements(text: str, schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """The value that a text stands for where lists and objects may be XML elements."""
    allowed = types_of(schema, root)
    children = None
    if text.lstrip().startswith("<") and depth < _MAX_DEPTH and len(text) <= _MAX_NESTED:
        children = _children(text) if allowed & {"array", "object"} - {"string"} else None
    if children is None or "string" in allowed:
        return typed(text, schema, root)
    node = _resolved(schema, root)
    properties = node.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    keys = {key for key, _ in children}
    if (
        "object" in allowed
        and len(keys) == len(children)
        and not (properties and keys - {*properties})
    ):
        return {
            key: typed_elements(set_off(inside), properties.get(key), root, depth + 1)
            for key, inside in children
        }
    if "array" in allowed and len(keys) == 1:
        items = node.get("items")
        return [typed_elements(inside.strip(), items, root, depth + 1) for _, inside in children]
    return typed(text, schema, root)


def set_off(text: str) -> str:
    """An element's text without what only sets it off from its tags.

    Of several lines the first and the last line break go, with the closing tag's indentation; of a
    single one all blanks around it.
    """
    if "\n" not in text.strip():
        return text.strip() if "\n" in text or text[:1] == text[-1:] == " " else text
    if text.startswith(("\n", "\r\n")):
        text = text.removeprefix("\r").removeprefix("\n")
        line = text.rstrip(" \t")
        text = line if line.endswith("\n") else text
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    found = look_up(root, reference) if isinstance(reference, str) else schema
    return found if isinstance(found, Mapping) else {}


def _children(text: str) -> list[tuple[str, str]] | None:
    """The elements that a text consists of; None where there is anything else in it."""
    children: list[tuple[str, str]] = []
    text = text.strip()
    while text:
        opening = _OPENING.match(text)
        end = _closing(text, opening) if opening else -1
        if opening is None or end < 0:
            return None
        children.append((opening.group(1), text[opening.end() : end]))
        text = text[end + len(opening.group()) + 1 :].lstrip()
    return children


def _closing(text: str, opening: re.Match[str]) -> int:
    """Where the tag stands that closes an element, others of its name in it being closed."""
    begin, end = opening.group(), f"</{opening.group(1)}>"
    at, opened, since = text.find(end, opening.end()), 0, opening.end()
    while at >= 0:
        opened += text.count(begin, since, at)
        if not opened:
            return at
        opened -= 1
        since = at + len(end)
        at = text.find(end, since)
    return -1


def _parse(raw: str, allowed: set[str]) -> Any:
    word = raw.lower()
    if word == "null" or (word == "none" and "null" in allowed and "string" not in allowed):
        return None
    if word in ("true", "false"):
        return word == "true"
    if _NUMBER.match(raw):
        # `007` or `1e5` are read as the numbers they are only where a number is due.
        numeric = bool(allowed & {"integer", "number"})
        return _number(raw, numeric)
    if raw[:1] in ("{", "[", '"', "'", "("):
        return _structure(raw, allowed)
    return _MISSING


def _number(raw: str, numeric: bool) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        pass
    if not numeric:
        return _MISSING
    try:
        return int(raw)
    except ValueError:
        return float(raw)


def _structure(raw: str, allowed: set[str]) -> Any:
    try:
        return json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        pass
    structured = bool(allowed & {"array", "object"})
    if raw[0] in "'(" and not structured:
        return _MISSING
    try:
        return python_literal(raw)
    except ValueError:
        return _unescaped(raw) if structured else _MISSING


def _unescaped(raw: str) -> Any:
    """A list or object written as it would be inside a JSON string: `[{\\"a\\": 1}]`."""
    try:
        return json.loads(json.loads(f'"{raw}"', strict=False), strict=False)
    except (ValueError, TypeError, RecursionError):
        return _MISSING


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"
