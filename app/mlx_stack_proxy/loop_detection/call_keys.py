"""Digests of tool calls: equal calls have the same digest of tool name and arguments.

All arguments count, as canonical JSON. A parameter that merely comments on the call could be
recognised only by its name, and a name proves nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from ..tool_validation.tools import tool_set
from ..wire.blocks import dumped_leniently

_LONG = 19  # digits; a longer integer may exceed the 64 bits that orjson preserves
_LONG_NUMBER: Final = re.compile(rf"\d{{{_LONG}}}")
_DIGIT: Final = re.compile(r"\d")
# From the original design: the arguments that identify a call, and tools whose arguments all count.
_SALIENT: Final = ("path", "url", "query", "command", "pattern", "glob", "cmd")
_ALL_COUNT: Final = ("write_file", "str_replace")
_BUCKET: Final = 200  # lines of a file that count as one place
_VALUES: Final = 16  # argument values that are searched for in the call's result


class CallKey(NamedTuple):
    """A tool call's name, and the digests that are compared."""

    name: str
    key: int  # the digest of name and arguments
    salient: int = 0  # the digest of name and salient arguments; 0: the same as `key`


def read(name: str, arguments: Any, *, salient: bool = False) -> CallKey:
    """Return the key of a call. ``arguments``: JSON text as on the wire, or the parsed value."""
    return key_of(name, parsed(arguments), salient=salient)


def key_of(name: str, arguments: Any, *, salient: bool = False) -> CallKey:
    """Return the key of a call with parsed arguments. ``salient``: add the salient digest."""
    key = digest(name, _canonical(arguments))
    about = _salient(name, arguments) if salient and isinstance(arguments, dict) else {}
    return CallKey(name, key, digest(name, _canonical(about)) if about else 0)


def _salient(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that identify a call; none if all do."""
    if name in _ALL_COUNT:
        return {}
    salient = {key: arguments[key] for key in _SALIENT if arguments.get(key) is not None}
    if name == "read_file" and salient:
        salient["lines"] = [(line - 1) // _BUCKET for line in _lines_read(arguments)]
    return salient if len(salient) != len(arguments) or "lines" in salient else {}


def _lines_read(arguments: dict[str, Any]) -> tuple[int, int]:
    numbers = [arguments.get(key) for key in ("start_line", "end_line", "offset", "limit")]
    start, end, offset, limit = [n if type(n) is int else None for n in numbers]
    first = start if start is not None else offset or 1
    if end is None:
        end = first + limit - 1 if limit is not None else first
    return max(min(first, end), 1), max(first, end, 1)


def values_in(arguments: Any) -> list[str]:
    """Return values in a call's parsed arguments, the longest first; of a text its words."""
    values = arguments.split() if isinstance(arguments, str) else []
    rest = [] if isinstance(arguments, str) else [arguments]
    while rest and len(values) < _VALUES:
        value = rest.pop()
        if isinstance(value, (dict, list)):
            rest += value.values() if isinstance(value, dict) else value
        elif value is not None and not isinstance(value, bool):
            values.append(" ".join(str(value).split()))
    return sorted(values, key=len, reverse=True)[:_VALUES]


def filled(name: str, arguments: Any, tools: object) -> CallKey | None:
    """Return the key with the schema's defaults filled in; None if the call sets all of them."""
    properties, given = tool_set(tools).parameters(name), parsed(arguments)
    if not isinstance(given, dict) or not isinstance(properties, Mapping):
        return None
    defaults = {
        key: parameter["default"]
        for key, parameter in properties.items()
        if isinstance(parameter, dict) and "default" in parameter
    }
    return None if defaults.keys() <= given.keys() else key_of(name, {**defaults, **given})


def canonical(arguments: Any) -> str:
    """Return the arguments as JSON with sorted keys and no blanks.

    Text that is not JSON becomes one JSON string with collapsed whitespace.
    """
    return _canonical(parsed(arguments)).decode("utf-8", "replace")


def digest(*parts: str | bytes) -> int:
    """Return a 64-bit digest of the parts, the same in every process."""
    data = [
        part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts
    ]
    if len(data) != 1:  # the lengths come first, so that different lists of parts differ
        data = [b",".join([b"%d" % len(part) for part in data] + data)]
    return int.from_bytes(blake2b(data[0], digest_size=8).digest(), "little")


def parsed(arguments: Any) -> Any:
    """Return the arguments' value: text that is not JSON as it is, ``{}`` for blank text."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        # Any run of _LONG digits has a digit in this slice, which makes a quick test.
        if _DIGIT.search(arguments[_LONG - 1 :: _LONG]) and _LONG_NUMBER.search(arguments):
            return json.loads(arguments)  # keeps every digit
        return orjson.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return " ".join(arguments.split())


def _canonical(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        return dumped_leniently(value)
