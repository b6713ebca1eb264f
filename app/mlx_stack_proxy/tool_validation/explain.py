"""Say what is wrong with a call, in sentences that a model can act on.

Each sentence names the field and the function, the values allowed, and the value that came.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from .names import MAX_NAME, nearest

MAX_VALUE: Final = 80  # characters of a value in a sentence
MAX_REASON: Final = 400  # characters of the validator's message
MAX_LISTED: Final = 12  # names or options in a sentence
KINDS: Final = {"type": "wrong_type", "enum": "not_in_enum", "const": "not_in_enum"}
UNEXPLAINED: Final = object()  # stands for errors that would cost too much to collect


def unknown_tool(name: str, offered: Sequence[str]) -> str:
    """Say that no tool has this name, and which names are near."""
    near = nearest(name, offered)
    more = (
        f"; did you mean {one_of(near)}?" if near else "" if offered else ": no tools are available"
    )
    return f'function "{shortened(name)}" does not exist{more}'


def schema_error(error: Any, tool: str, declared: Collection[str] = ()) -> tuple[str, str]:
    """Return kind and sentence for a ``jsonschema_rs.ValidationError`` or ``UNEXPLAINED``.

    ``tool``: the function's name, "" for a reply under ``response_format``. ``declared``: names of
    the root's parameters, to be listed if a field is unknown.
    """
    subject = "the arguments" if tool else "the JSON"
    place = f'in function "{tool}"' if tool else "in the reply"
    if error is UNEXPLAINED:
        return "schema", f"{subject} {place} must fit its schema, and some deeper part does not"
    kind, path = error.kind, error.instance_path
    match kind.name:
        case "required":
            name = _field([*path, kind.property])
            return "missing_required", f"missing required field {name} {place}"
        case "additionalProperties" | "unevaluatedProperties":
            names = ", ".join(f'"{shortened(name)}"' for name in kind.unexpected[:MAX_LISTED])
            known = "" if path or not declared else f"; allowed are {listed(sorted(declared))}"
            return "unknown_parameter", f"unknown field {names} {place}{known}"
    # The validator's own words, such as: it is not of type "integer".
    branches = getattr(kind, "context", ())  # of `anyOf` and `oneOf`: the errors of each form
    firsts = dict.fromkeys(branch[0].message for branch in branches if branch)
    wrong = (
        f"it fits none of the allowed forms ({'; or '.join(firsts)})" if firsts else error.message
    )
    if kind.name == "enum" and not kind.options:
        wrong = "no value is allowed"
    part, value = f"field {_field(path)}" if path else subject, described(error.instance)
    wrong = shortened(wrong, MAX_REASON)
    return KINDS.get(kind.name, "schema"), f"{part} {place} came as {value}: {wrong}"


def field_of(error: Any) -> str:
    """Return the schema's own name of the field that is wrong, as ``a.b``; "" if it names none.

    Names that only the model's arguments have are not in it.
    """
    if error is UNEXPLAINED:
        return ""
    steps = iter(error.schema_path)
    names = [str(next(steps, "")) for step in steps if step == "properties"]
    if error.kind.name == "required":
        names.append(error.kind.property)
    return shortened(".".join(names), MAX_NAME)


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
