"""Doubts valid calls whose values are probably not what the model meant.

A doubted call gets a second opinion: the model is asked once more, and the new reply is delivered
unless it doesn't resolve the doubt. So a doubt may be wrong, and structure alone decides it. Each
doubt is a row of ``DOUBTS`` under the kind that metrics name; a row can be switched off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from .conversation import Conversation, is_blank
from .explain import quoted
from .formats.base import CLOSING_TAG, VENDOR_MARK
from .miscopied_ids import miscopied
from .names import words
from .schemas import CompiledSchema

MAX_LEAVES: Final = 2_000  # single values examined in a reply
MIN_LEAVES: Final = 16  # … in each of its calls, regardless of their number
MAX_PLACEHOLDER: Final = 80  # characters; a longer value is not a placeholder
MAX_MARKED: Final = 400  # characters; a longer value may be a text about markup
_TAIL: Final = 100  # characters at the end of a value that are searched for an end mark
MAX_AROUND: Final = 2  # words that a placeholder may have besides the parameter's name

_DOTS: Final = re.compile(r"\.{3,}|…")  # ".." is a folder
_BRACKETED: Final = re.compile(r"<\s*+\w[^<>]*>|\{\{[^{}]*\}\}|\[[^\[\]\d\"',]*\]")
_WORDS_ONLY: Final = re.compile(r"[\w -]+")
_SEPARATOR: Final = re.compile(r"[\s_-]+")
_TYPE: Final = "string"  # the schema's type name, which models copy as a placeholder
# Marks of calls and turn ends left by a server; `_END_MARK` counts only at a value's end.
_MARK: Final = re.compile(
    r"<\|/?\w{1,40}\|?>|<｜[^<>\n]{1,60}｜>|</?arg_(?:key|value)\b|</?tool_calls?>"
)
# A drive, then a name whose first letter became an escape, without any blank.
_DRIVE: Final = re.compile(r"[A-Za-z]:(?=[\t\n\r\b\f]\w)[^ ]*+\Z")
_END_MARK: Final = re.compile(rf"(?:{CLOSING_TAG}|{VENDOR_MARK})\s*\Z")

# The path of a doubted field, and what is wrong with it.
Found = Iterator[tuple[str, str]]
# The value's path as text, the names on the path, the value, and the schema if it is required.
Leaf = tuple[str, tuple[str, ...], Any, dict[str, Any] | None]


class ValidCall(Struct, frozen=True):
    """A valid call, and the facts by which it may be doubted."""

    tool: str
    arguments: dict[str, Any]
    schema: CompiledSchema
    said: Conversation  # tells whether a value occurred before
    leaves: Sequence[Leaf]  # its first single values


def call_doubts(call: ValidCall, off: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Yield the kind and the sentence of each doubt about a call, except the kinds in ``off``."""
    for kind, find in DOUBTS.items():
        if kind not in off:
            for path, wrong in find(call):
                yield kind, f'field "{path}" in function "{call.tool}" {wrong}'


def _empty(call: ValidCall) -> Found:
    """Doubt a blank required text or list, unless an earlier call of the tool had one, too."""
    for path, keys, value, schema in call.leaves:
        kind = "array" if isinstance(value, list) else "string"
        if schema is None or "enum" in schema or schema.get("type") != kind:
            continue
        if is_blank(value) and not call.said.had_empty(call.tool, keys):
            yield path, "is empty"


def _placeholder(call: ValidCall) -> Found:
    """Doubt a text that is dots, bracketed, ``string``, or little more than its parameter's name.

    A text that occurred before, or that the tool's schema contains, is not doubted.
    """
    for path, keys, value, _ in _strings(call):
        if len(value) > MAX_PLACEHOLDER or not _is_placeholder_text(value.strip(), keys[-1]):
            continue
        named = value not in (_TYPE, keys[-1]) and call.schema.names(value)
        if not call.said(value) and not named:
            yield path, f"holds {quoted(value)}, as a placeholder would"


def _is_placeholder_text(text: str, parameter: str) -> bool:
    if _DOTS.fullmatch(text) or _BRACKETED.fullmatch(text) or text == _TYPE:
        return True
    if not _WORDS_ONLY.fullmatch(text):
        return False
    name, text_words = words(parameter), _SEPARATOR.split(text.lower())
    if not name or not 0 <= len(text_words) - len(name) <= MAX_AROUND:
        return False
    if text_words == name:
        return len(name) > 1  # a single word may be a real value: `password`, `app`
    size = len(name)
    return any(
        text_words[index : index + size] == name for index in range(len(text_words) - size + 1)
    )


def _leaked(call: ValidCall) -> Found:
    """Doubt a format's mark in a parameter's name or a short value, or at a value's end."""
    for path, keys, value, _ in _strings(call):
        mark = _MARK.search(keys[-1]) or _END_MARK.search(value, max(0, len(value) - _TAIL))
        if mark is None and len(value) <= MAX_MARKED:
            mark = _MARK.search(value)
        if mark and not call.said(mark[0].strip()):
            yield path, f"holds tool-call markup: {quoted(mark[0])}"


def _miscopied(call: ValidCall) -> Found:
    """Doubt an unknown id that is one copying error away from an id in the conversation."""
    slip = miscopied(((path, value) for path, _, value, _ in call.leaves), call.said)
    if slip is not None:
        path, value, original = slip
        nowhere = "which stands nowhere in the conversation"
        yield path, f"is {quoted(value)}, {nowhere}, where {quoted(original)} does"


def _keyword(call: ValidCall) -> Found:
    """Doubt a parameter that the tool lacks and that has the name of a schema keyword."""
    raw, declared = call.schema.raw, call.schema.declared
    for key in call.arguments:
        if isinstance(raw, dict) and key in raw and key not in declared:
            yield key, "is a keyword of the schema, no parameter"


def _unframed(call: ValidCall) -> Found:
    """Doubt a text, such as a patch, that doesn't begin and end as its tool's grammar requires."""
    for name, (opening, closing) in call.schema.frames.items():
        value = call.arguments.get(name)
        text = value.strip() if isinstance(value, str) else ""
        if text and not (text.startswith(opening) and text.endswith(closing)):
            ends = f"begins with {quoted(opening)} and ends with {quoted(closing)}"
            yield name, f"is not a text that {ends}"


def _unescaped(call: ValidCall) -> Found:
    r"""Doubt a Windows path with a control character: what `C:\new` becomes without an escape."""
    for path, _, value, _ in _strings(call):
        if len(value) <= MAX_MARKED and _DRIVE.match(value):
            wrong = "is a path with a tab or line break in it"
            yield path, f"{wrong}: in JSON, a backslash is written twice"


DOUBTS: Final[Mapping[str, Callable[[ValidCall], Found]]] = {
    "leaked_markup": _leaked,
    "empty_value": _empty,
    "placeholder": _placeholder,
    "miscopied_id": _miscopied,
    "unframed_text": _unframed,
    "schema_keyword": _keyword,
    "unescaped_path": _unescaped,
}


def _strings(call: ValidCall) -> Iterator[Leaf]:
    """Yield the texts of a call."""
    return (leaf for leaf in call.leaves if isinstance(leaf[2], str))


def leaves(arguments: dict[str, Any], schema: object, most: int = MAX_LEAVES) -> list[Leaf]:
    """Return a call's first ``most`` single values, including those in objects and arrays.

    An empty array counts as a single value.
    """
    return list(islice(_leaves(arguments, schema, "", (), required=False), most))


def _leaves(
    value: Any, schema: object, path: str, keys: tuple[str, ...], *, required: bool
) -> Iterator[Leaf]:
    schema = schema if isinstance(schema, dict) else {}
    if isinstance(value, dict):
        properties, needed = schema.get("properties", {}), schema.get("required", ())
        for key, item in value.items():
            place = f"{path}.{key}" if path else key
            inner = (*keys, key)
            yield from _leaves(item, properties.get(key), place, inner, required=key in needed)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, schema.get("items"), f"{path}[{index}]", keys, required=False)
    else:
        yield path, keys, value, schema if required else None
