"""Explains what is wrong with a call, in sentences that a model can act on.

Each sentence names the field and the function, the allowed values, and the actual value.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from ..engine.verdicts import CallFailure
from .names import MAX_NAME, nearest

MAX_VALUE: Final = 80  # characters of a value in a sentence
MAX_REASON: Final = 400  # characters of the validator's message
MAX_LISTED: Final = 12  # names or options in a sentence
KINDS: Final = {"type": "wrong_type", "enum": "not_in_enum", "const": "not_in_enum"}
UNEXPLAINED: Final = object()  # stands for errors that would cost too much to collect


def unknown_tool(name: str, offered: Sequence[str]) -> str:
    """Say that no tool has this name, and which names are similar."""
    sentence, near = f'function "{shortened(name)}" does not exist', nearest(name, offered)
    if not offered:
        return f"{sentence}: no tools are available"
    return f"{sentence}; did you mean {one_of(near)}?" if near else sentence


def schema_error(error: Any, name: str, tool: str, declared: Collection[str]) -> CallFailure:
    """Return the failure for a ``jsonschema_rs.ValidationError`` or ``UNEXPLAINED``.

    ``name``: the tool's name as the model wrote it. ``tool``: the tool it means, "" for a reply
    under ``response_format``. ``declared``: the root's parameters, listed if a field is unknown.
    The failure's ``field`` contains no names that only the model's arguments have.
    """
    subject, place = (
        ("arguments", f'function "{shortened(tool)}"') if tool else ("JSON", "the reply")
    )
    if error is UNEXPLAINED:
        sentence = f"the {subject} in {place} must fit its schema, and some deeper part does not"
        return CallFailure(name, "schema", sentence)
    kind, path, steps = error.kind, error.instance_path, iter(error.schema_path)
    names = [str(next(steps, "")) for step in steps if step == "properties"]
    match kind.name:
        case "required":
            names.append(kind.property)
            label = "missing_required"
            sentence = f"missing required field {_field([*path, kind.property])} in {place}"
        case "additionalProperties" | "unevaluatedProperties":
            unknown = ", ".join(f'"{shortened(key)}"' for key in kind.unexpected[:MAX_LISTED])
            known = "" if path or not declared else f"; allowed are {listed(sorted(declared))}"
            label, sentence = "unknown_parameter", f"unknown field {unknown} in {place}{known}"
        case _:
            label = KINDS.get(kind.name, "schema")
            part, value = f"field {_field(path)}" if path else f"the {subject}", error.instance
            wrong = shortened(_wrong(error), MAX_REASON)
            sentence = f"{part} in {place} came as {described(value)}: {wrong}"
    return CallFailure(name, label, sentence, field=shortened(".".join(names), MAX_NAME))


def _wrong(error: Any) -> str:
    """Return the validator's message, such as: it is not of type "integer"."""
    branches = getattr(error.kind, "context", ())  # of `anyOf`, `oneOf`: each form's errors
    firsts = dict.fromkeys(branch[0].message for branch in branches if branch)
    if firsts:
        return f"it fits none of the allowed forms ({'; or '.join(firsts)})"
    nothing = error.kind.name == "enum" and not error.kind.options
    return "no value is allowed" if nothing else str(error.message)


def described(value: Any) -> str:
    """Describe a value with its type: ``the string "five"``."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, str):
        return f"the string {quoted(value)}"
    if isinstance(value, int | float):
        return f"the number {shortened(str(value))}"
    if isinstance(value, list):
        return f"an array of {len(value)} elements"
    return f"an object with the fields {listed(value)}" if value else "an empty object"


def listed(values: Iterable[Any]) -> str:
    """Join values as ``"a", "b", "c"``; of a long list, count the rest."""
    items = list(values)
    words = ", ".join(map(quoted, items[:MAX_LISTED]))
    return words if len(items) <= MAX_LISTED else f"{words} and {len(items) - MAX_LISTED} more"


def one_of(names: Sequence[str]) -> str:
    """Join names as ``"a", "b" or "c"``."""
    words = [quoted(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def shortened(text: str, limit: int = MAX_VALUE) -> str:
    """Return ``text`` on one line, cut to ``limit`` characters, and encodable as UTF-8."""
    flat = " ".join(text[: limit * 2].split())
    flat = flat.encode("utf-8", "replace").decode()
    return flat if len(flat) <= limit and len(text) <= limit * 2 else f"{flat[: limit - 1]}…"


def quoted(value: Any) -> str:
    """Return a value in quotation marks, or as JSON, shortened."""
    return f'"{shortened(value)}"' if isinstance(value, str) else shortened(json.dumps(value))


def _field(path: Sequence[str | int]) -> str:
    """Write a path as ``"a.b[0]"``, quotes included."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return f'"{shortened(text, MAX_NAME)}"'
