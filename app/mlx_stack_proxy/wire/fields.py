"""Reads fields of a request's objects; errors name what is wrong and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from ..errors import invalid


def string(given: Mapping[str, Any], key: str, where: str) -> str:
    """Return a required string. Raises :class:`ProxyError` (400)."""
    value = given.get(key)
    if not isinstance(value, str):
        raise invalid(f"`{where}.{key}` must be a string", f"{where}.{key}")
    return value


def objects(value: Any, where: str) -> list[dict[str, Any]]:
    """Return a list of objects, empty for None. Raises :class:`ProxyError` (400)."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise invalid(f"`{where}` must be an array", where)
    for position, one in enumerate(value):
        if not isinstance(one, dict):
            raise invalid(f"`{where}[{position}]` must be an object", f"{where}[{position}]")
    return value


def has_type(value: Any, type_: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and value.get("type") == type_
