"""Unwrap arguments that a model put into another object, and find what it copied next to them.

The object is the call itself, as OpenAI writes it, or has one key such as ``input``. A copy is a
keyword of the tool's own schema, such as ``required``, among the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...frozen import frozen
from ..formats.json_calls import ARGUMENT_KEYS, CALL_TYPES, NAME_KEYS, NESTED_KEYS, OTHER_KEYS
from ..names import squash
from .values import container_in

MAX_WRAPPINGS: Final = 3
# Keys under which models put the arguments once more, and (`_COMPANIONS`) the keys next to these.
WRAPPERS: Final = frozenset((*ARGUMENT_KEYS, *NESTED_KEYS, "tool_calls"))
_NAMING: Final = frozenset(NAME_KEYS)
_COMPANIONS: Final = _NAMING | set(OTHER_KEYS)


@frozen
class Unwrapped:
    """The arguments inside a wrapping."""

    inner: dict[str, Any]
    sure: bool  # the object is a wrapping even if the schema accepts it as it came


def unwrap(value: dict[str, Any], tool: str, declared: frozenset[str]) -> Unwrapped | None:
    """Unwrap ``{"arguments": {...}}`` and the like, up to three levels; None if nothing is wrapped.

    ``declared``: the names of the tool's parameters.
    """
    inner, is_named = value, False
    for _ in range(MAX_WRAPPINGS):
        step = _step(inner, tool, declared)
        if step is None:
            break
        inner = step[0]
        is_named = is_named or step[1]
    if inner is value:
        return None
    return Unwrapped(inner, inner.keys() <= declared and (bool(inner) or is_named))


def copied_keywords(arguments: dict[str, Any], raw: Any, declared: frozenset[str]) -> list[str]:
    """Return the arguments that are keywords of the schema, with the very value that it has there.

    ``raw``: the tool's schema as the client sent it. ``declared``: the names of its parameters.
    """
    if not isinstance(raw, dict):
        return []
    return [
        key
        for key, value in arguments.items()
        if key in raw and key not in declared and value == raw[key]
    ]


def _step(
    value: dict[str, Any], tool: str, declared: frozenset[str]
) -> tuple[dict[str, Any], bool] | None:
    """Return the object inside one wrapping, and whether the tool's name stands next to it.

    None if ``value`` is not certainly a wrapping. A declared parameter called ``input`` is not one;
    a declared ``name`` may still hold the tool's name. A name next to the arguments must be the
    tool's, or unwrapping would choose between two tools. The inner object may be JSON text, as
    OpenAI's arguments are.
    """
    if len(value) > len(_COMPANIONS):
        return None
    alone = len(value) == 1 and squash(next(iter(value))) == squash(tool)
    inside = {
        key: inner
        for key, item in value.items()
        if (alone or key in WRAPPERS) and (inner := _as_object(key, item)) is not None
    }
    siblings = {key: item for key, item in value.items() if key not in inside}
    if len(inside) != 1 or not declared.isdisjoint(inside):
        return None
    if not all(_goes_with_a_call(key, item, tool) for key, item in siblings.items()):
        return None
    (inner,) = inside.values()
    is_named = not _NAMING.isdisjoint(siblings)
    # A declared parameter may stand next to the arguments only if the arguments have it, too.
    parameters = declared.intersection(value) - _NAMING
    if parameters and not (is_named and parameters <= inner.keys() <= declared):
        return None
    return inner, is_named


def _goes_with_a_call(key: str, item: Any, tool: str) -> bool:
    if key in _NAMING and isinstance(item, str):
        return squash(item) in (squash(tool), squash(f"functions.{tool}"))
    return key in _COMPANIONS and isinstance(item, str) and (key != "type" or item in CALL_TYPES)


def _as_object(key: str, item: Any) -> dict[str, Any] | None:
    """Return the object: ``item`` itself, or in its text, or alone in a list of ``tool_calls``."""
    if key == "tool_calls" and isinstance(item, list) and len(item) == 1:
        item = item[0]
    if isinstance(item, str):
        item = container_in(item)
    return item if isinstance(item, dict) else None


def framed(value: dict[str, Any], frames: Mapping[str, tuple[str, str]]) -> dict[str, Any] | None:
    """Return the arguments of a tool whose text came as ``{"patch": "…"}``; None if it didn't.

    ``frames``: for the tool's only parameter, the words with which its text must begin and end.
    """
    if len(frames) != 1 or len(value) != 1:
        return None
    ((name, (opening, closing)),) = frames.items()
    ((key, item),) = value.items()
    if key == name:
        inner = container_in(item)
        item = next(iter(inner.values())) if isinstance(inner, dict) and len(inner) == 1 else None
    text = item.strip() if isinstance(item, str) else ""
    return {name: item} if text.startswith(opening) and text.endswith(closing) else None
