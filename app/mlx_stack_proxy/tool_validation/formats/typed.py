"""Values that a format writes without types (`<parameter=count>5</parameter>`), typed by schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ...wire.json_text import Unreadable
from ...wire.lenient_json import Reader
from ..json_types import JSON_TYPES, TYPE_ALIASES, is_of_type
from ..references import look_up
from .literals import BRACKETS

_NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?\Z")
_MISSING = object()


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
    if raw[0] in "'(" and allowed.isdisjoint(("array", "object")):
        return _MISSING
    reader = Reader(raw, python=True)
    try:
        value = reader.value()
    except (Unreadable, RecursionError):
        return _MISSING
    whole = reader.position == len(raw) and BRACKETS.isdisjoint(reader.used)
    return value if whole else _MISSING


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
