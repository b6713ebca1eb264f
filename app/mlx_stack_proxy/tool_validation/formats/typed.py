"""Values that a format writes without types (`<parameter=count>5</parameter>`), typed by schema."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from ...wire.json_text import Unreadable
from ...wire.lenient_json import Reader
from ..json_types import is_of_type
from ..repair.variants import kinds, variants
from .literals import BRACKETS


def typed(raw: str, allowed: Set[str]) -> Any:
    """The value that `raw` stands for where a schema allows these types; none: it does not say.

    Text stays text where the schema allows text only; a number, boolean, null, list or object is
    read as JSON or as Python writes it where the schema allows it, or says nothing. What does not
    fit any allowed type stays the text it is, for the validator to judge.
    """
    if allowed == {"string"}:
        return raw
    reader = Reader(f"{raw} ", python=True)  # a number ends before a blank
    try:
        value = reader.value()
    except (Unreadable, RecursionError):
        return raw
    if reader.text[reader.position :].strip() or not BRACKETS.isdisjoint(reader.used):
        return raw
    none = value is None and "null" not in raw and ("null" not in allowed or "string" in allowed)
    fits = not allowed or any(is_of_type(value, kind) for kind in allowed)
    if isinstance(value, str) or none or not fits:
        return raw  # a text's quotes are part of it, and None may be one
    if "integer" in allowed and "number" not in allowed and isinstance(value, float):
        return int(value)
    return value


def types_of(schema: Any, definitions: Mapping[str, Any]) -> Set[str]:
    """The JSON types that a cleaned schema allows; none where it does not say."""
    found = [kinds(variant) for variant in variants(schema, definitions)]
    return frozenset().union(*(one or () for one in found)) if None not in found else frozenset()


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
