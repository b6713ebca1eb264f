"""Reads fields of a request's objects; errors name what is wrong and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from ..errors import invalid


def string(mapping: Mapping[str, Any], key: str, path: str) -> str:
    """Return a required string. Raises :class:`ProxyError` (400)."""
    value = mapping.get(key)
    if not isinstance(value, str):
        raise invalid(f"`{path}.{key}` must be a string", f"{path}.{key}")
    return value


def objects(value: Any, path: str) -> list[dict[str, Any]]:
    """Return a list of objects, empty for None. Raises :class:`ProxyError` (400)."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise invalid(f"`{path}` must be an array", path)
    for position, item in enumerate(value):
        if not isinstance(item, dict):
            raise invalid(f"`{path}[{position}]` must be an object", f"{path}[{position}]")
    return value


def has_type(value: Any, type_: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and value.get("type") == type_
