"""JSON Schema references, followed inside the schema that holds them."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

MAX_SEARCHED: Final = 20_000


def look_up(whole: object, reference: str) -> dict[str, Any] | bool | None:
    """What a reference into the schema itself points at; None for all others."""
    base, _, fragment = reference.partition("#")
    own = whole.get("$id", whole.get("id")) if isinstance(whole, dict) else None
    if base and base != (own.partition("#")[0] if isinstance(own, str) else ""):
        return None
    found: object = whole
    if fragment and not fragment.startswith("/"):
        found = _anchor(whole, fragment)
    for step in fragment.split("/")[1:] if fragment.startswith("/") else ():
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and int(key[:9]) < len(found):
            found = found[int(key[:9])]
        else:
            return None
    return found if isinstance(found, bool | dict) else None


def _anchor(whole: object, name: str) -> object:
    stack, seen = [whole], 0
    while stack and seen < MAX_SEARCHED:
        seen += 1
        found = stack.pop()
        if isinstance(found, dict):
            if found.get("$anchor") == name or found.get("$id") == f"#{name}":
                return found
            stack.extend(found.values())
        elif isinstance(found, list):
            stack.extend(found)
    return None
