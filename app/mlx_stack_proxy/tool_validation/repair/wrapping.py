"""Unwraps arguments inside another object, and finds schema keywords copied among them.

The object is the call itself, in OpenAI's form, or has one key such as ``input``. A copied keyword
is one of the tool's own schema, such as ``required``.
"""

from __future__ import annotations

from typing import Any, Final

from ..formats.json_calls import ARGUMENT_KEYS, CALL_TYPES, NAME_KEYS, NESTED_KEYS, OTHER_KEYS
from ..names import squash
from ..schemas import CompiledSchema
from .values import container_in

MAX_WRAPPINGS: Final = 3
# Keys under which models nest the arguments, and (`_COMPANIONS`) the keys next to these.
WRAPPERS: Final = frozenset((*ARGUMENT_KEYS, *NESTED_KEYS, "tool_calls"))
_NAMING: Final = frozenset(NAME_KEYS)
_COMPANIONS: Final = _NAMING | set(OTHER_KEYS)

Members = dict[str, Any]


def unwrapped(
    value: Members, tool: str, schema: CompiledSchema, *, valid: bool
) -> tuple[Members, list[str]]:
    """Return the arguments inside ``{"arguments": {...}}`` and the like, and the rules applied.

    ``valid``: the schema accepts the original value; then only a certain wrapping is removed.
    """
    inner, is_named = value, False
    for _ in range(MAX_WRAPPINGS):
        step = _step(inner, tool, schema.declared)
        if step is None:
            break
        inner, is_named = step[0], is_named or step[1]
    sure = inner.keys() <= schema.declared and (bool(inner) or is_named)
    if inner is value or (valid and not sure):
        inner = _framed(value, schema) or value
    rules = [] if inner is value else ["wrapped_arguments"]
    raw = schema.raw if isinstance(schema.raw, dict) else {}
    undeclared = [key for key in inner if key in raw and key not in schema.declared]
    copies = [key for key in undeclared if inner[key] == raw[key]]
    if copies:
        rules.append("schema_keyword")
        inner = {key: item for key, item in inner.items() if key not in copies}
    return inner, rules


def _step(value: Members, tool: str, declared: frozenset[str]) -> tuple[Members, bool] | None:
    """Return the object inside one wrapping, and whether the tool's name is next to it.

    None if ``value`` is not certainly a wrapping. A declared parameter called ``input`` is not one;
    a declared ``name`` may still hold the tool's name. A name next to the arguments must be the
    tool's, or unwrapping would choose between two tools. The inner object may be JSON text, like
    OpenAI's arguments.
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
    if not all(_is_call_member(key, item, tool) for key, item in siblings.items()):
        return None
    (inner,) = inside.values()
    is_named = not _NAMING.isdisjoint(siblings)
    # A declared parameter may be next to the arguments only if the arguments have it, too.
    parameters = declared.intersection(value) - _NAMING
    if parameters and not (is_named and parameters <= inner.keys() <= declared):
        return None
    return inner, is_named


def _is_call_member(key: str, item: Any, tool: str) -> bool:
    if key in _NAMING and isinstance(item, str):
        return squash(item) in (squash(tool), squash(f"functions.{tool}"))
    return key in _COMPANIONS and isinstance(item, str) and (key != "type" or item in CALL_TYPES)


def _as_object(key: str, item: Any) -> Members | None:
    """Return the object: ``item`` itself, in its text, or alone in a list of ``tool_calls``."""
    if key == "tool_calls" and isinstance(item, list) and len(item) == 1:
        item = item[0]
    inner = container_in(item) if isinstance(item, str) else item
    return inner if isinstance(inner, dict) else None


def _framed(value: Members, schema: CompiledSchema) -> Members | None:
    """Return the arguments of a tool whose text arrived as ``{"patch": "…"}``, or None."""
    if len(schema.frames) != 1 or len(value) != 1:
        return None
    ((name, (opening, closing)),) = schema.frames.items()
    ((key, item),) = value.items()
    if key == name:
        inner = container_in(item)
        item = next(iter(inner.values())) if isinstance(inner, dict) and len(inner) == 1 else None
    text = item.strip() if isinstance(item, str) else ""
    return {name: item} if text.startswith(opening) and text.endswith(closing) else None
