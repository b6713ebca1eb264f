"""Reading single values: JSON as models write it, and objects' JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from ...wire.json_text import Unreadable
from ...wire.lenient_json import Reader
from .base import Source

BRACKETS = frozenset({"missing_closer", "extra_closer"})
_SPACE = re.compile(r"\s*")


def skip_space(text: str, pos: int) -> int:
    """The index of the first character from `pos` on that is not whitespace."""
    match = _SPACE.match(text, pos)
    return match.end() if match else pos


def dumps(value: Any) -> str:
    """JSON text as models write it: unescaped Unicode. Raises TypeError for what JSON lacks."""
    return json.dumps(value, ensure_ascii=False)


def object_of(members: Iterable[tuple[str, Any]]) -> str:
    """An object's JSON text. A key that comes twice stays twice: the check says so."""
    return "{" + ", ".join(f"{dumps(key)}: {dumps(value)}" for key, value in members) + "}"


def json_object(text: str) -> dict[str, Any] | None:
    """The object whose JSON a text is; None where it is anything else."""
    try:
        value = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_members(src: Source, pos: int, mark: str = "") -> tuple[dict[str, Any], int] | None:
    """The members of the JSON object at `pos`, and the index after it; None where there is none."""
    found = json_value(src, pos, mark)
    return found if found is not None and isinstance(found[0], dict) else None


def json_value(src: Source, pos: int, mark: str = "") -> tuple[Any, int] | None:
    """The JSON value at `pos` and the index after it; None where it can't be read.

    Also with what models write instead: single quotes, Python's literals, a trailing comma, raw
    line breaks, keys without quotes; `mark` stands around Gemma's texts. Not with a bracket
    missing, which the check of arguments judges, and not where one key has two values.
    """
    reader = Reader(src.text, pos, mark=mark)
    try:
        value = reader.value()
    except (Unreadable, RecursionError):
        src.spend(max(reader.position - pos, 0) + 1)
        return None
    if not BRACKETS.isdisjoint(reader.used):
        src.spend(reader.position - pos)
        return None
    return value, reader.position
