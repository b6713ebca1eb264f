"""JSON Schema references, followed inside the schema that holds them."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote


def look_up(whole: object, reference: str) -> dict[str, Any] | bool | None:
    """What a reference into the schema itself points at; None for all others."""
    base, _, pointer = reference.partition("#")
    own = str(whole.get("$id", "")) if isinstance(whole, dict) else ""
    if (base and base != own.partition("#")[0]) or (pointer and not pointer.startswith("/")):
        return None
    found: object = whole
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and int(key[:9]) < len(found):
            found = found[int(key[:9])]
        else:
            return None
    return found if isinstance(found, bool | dict) else None
