"""Checks and reads the fields of a request's objects; errors name the problem and its place.

A :data:`Check` is composed of smaller ones: ``members(name=STRING, tags=each(STRING))``. A null
counts as an absent field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeGuard

import orjson

from ..errors import ProxyError, invalid

# A keyword of our own in a parameter's schema: the words with which the text begins and ends.
FRAME: Final = "x-frame"
MAX_DEPTH: Final = 128  # nested objects and arrays; real clients' bodies have about 20
_DEEPEST: Final = 254  # the deepest nesting that orjson writes

# Where in a value a problem is (`[0].name`; "": the value itself), and what; None: no problem.
Problem = tuple[str, str] | None
Check = Callable[[Any], Problem]


def of(expected: str, *types: type) -> Check:
    """Return a check for values of these types; a bool doesn't count as a number."""
    problem = ("", f"must be {expected}")
    allowed = frozenset(types)
    return lambda value: None if type(value) in allowed else problem


STRING: Final = of("a string", str)
OBJECT: Final = of("an object", dict)
BOOLEAN: Final = of("true or false", bool)
NUMBER: Final = of("a number", int, float)


def members(required: Collection[str] = (), /, **checks: Check) -> Check:
    """Return a check for objects whose fields pass these checks; other fields may be anything."""
    items = [(name, check, name in required) for name, check in checks.items()]

    def check_fields(value: Any) -> Problem:
        if type(value) is not dict:
            return OBJECT(value)
        for name, check, is_required in items:
            field = value.get(name)
            if (field is not None or is_required) and (problem := check(field)) is not None:
                return f".{name}{problem[0]}", problem[1]
        return None

    return check_fields


def each(check: Check) -> Check:
    """Return a check for arrays whose items pass a check."""

    def check_items(value: Any) -> Problem:
        if type(value) is not list:
            return "", "must be an array"
        for position, item in enumerate(value):
            if (problem := check(item)) is not None:
                return f"[{position}]{problem[0]}", problem[1]
        return None

    return check_items


def string_or(check: Check) -> Check:
    """Return a check for strings, and for objects that pass a check."""
    problem = ("", "must be a string or an object")

    def check_either(value: Any) -> Problem:
        if type(value) is str:
            return None
        return check(value) if type(value) is dict else problem

    return check_either


def refused(problem: str, path: str) -> ProxyError:
    """Make the error (400) for a problem at a path."""
    return invalid(f"`{path}` {problem}", path)


def require(body: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    """Check a body's fields. Raises :class:`ProxyError` (400)."""
    for name, value in body.items():
        check = checks.get(name)
        if check is not None and value is not None and (problem := check(value)) is not None:
            raise refused(problem[1], name + problem[0])


def check_depth(value: Any, raw: bytes) -> None:
    """Refuse JSON nested so deeply that our code, or a server, could fail. ``raw``: its bytes.

    orjson measures the depth: it writes a gigabyte a second, but nothing that is nested too deeply.

    Raises :class:`ProxyError` (400).
    """
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return
    for _ in range(_DEEPEST - MAX_DEPTH):
        value = [value]
    try:
        orjson.dumps(value)
    except TypeError:
        raise invalid(f"the request body is nested more than {MAX_DEPTH} levels deep") from None


def string(mapping: Mapping[str, Any], key: str, path: str) -> str:
    """Return a required string. Raises :class:`ProxyError` (400)."""
    value = mapping.get(key)
    if not isinstance(value, str):
        raise refused("must be a string", f"{path}.{key}")
    return value


def objects(value: Any, path: str, expected: str = "an array") -> list[dict[str, Any]]:
    """Return a list of objects, empty for None. Raises :class:`ProxyError` (400)."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise refused(f"must be {expected}", path)
    for position, item in enumerate(value):
        if not isinstance(item, dict):
            raise refused("must be an object", f"{path}[{position}]")
    return value


def has_type(value: Any, type_: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and value.get("type") == type_
