"""When two tool calls are the same: digests of a call's arguments, by three rules.

- exact: the arguments as canonical JSON.
- loose: without noise, which a model writes anew each time: free text about the call, a fresh
  request id, a timestamp. What is left must still be something.
- salient: only what says what is acted on. The rule is deer-flow's: path, url, query, command,
  pattern, glob and cmd; ``read_file`` by path and 200-line bucket; ``write_file`` and
  ``str_replace`` whole, for there every character counts.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from ..tool_calls.names import MAX_NAME, squash

_LONG_NUMBER: Final = re.compile(r"\d{19}")  # perhaps more than orjson's 64 bits
# Parameters' names without case and separators.
_NOISE: Final = frozenset(
    {"description", "explanation", "reason", "reasoning", "rationale", "thought", "thoughts"}
    | {"requestid", "traceid", "correlationid", "invocationid", "idempotencykey", "nonce"}
    | {"callid", "toolcallid", "timestamp", "ts", "now", "currenttime", "requestedat", "createdat"}
)
_SALIENT: Final = ("path", "url", "query", "command", "pattern", "glob", "cmd")
_WHOLE: Final = frozenset({"write_file", "str_replace"})
_BUCKET: Final = 200  # lines
# Parameters that carry what is written into a file, and those that name one.
_WRITTEN: Final = frozenset(
    {"content", "contents", "newcontent", "filetext", "inserttext", "newstring", "newstr"}
    | {"newsource", "newtext", "replacement", "replace", "patch", "diff", "edits", "changes"}
    | {"codeedit"}
)
_PATHS: Final = frozenset({"path", "filepath", "file", "filename", "absolutepath", "targetfile"})


class Call(NamedTuple):
    """One call, as digests. ``writes``: its arguments carry text to be written somewhere."""

    name: str
    exact: int
    loose: int
    salient: int
    writes: bool = False


def read(name: str, arguments: Any) -> Call:
    """The digests of a call; ``arguments``: JSON text as on the wire, or what it holds."""
    value = _parsed(arguments)
    exact = digest(name, _canonical(value))
    if not isinstance(value, Mapping):
        return Call(name, exact, exact, exact)
    names = {_spelled(key) for key in value}
    loose = exact
    if not _NOISE.isdisjoint(names):
        kept = {key: one for key, one in value.items() if _spelled(key) not in _NOISE}
        loose = digest(name, _canonical(kept)) if kept else exact
    acted_on = _salient(name, value)
    salient = exact if acted_on is value else digest(name, _canonical(acted_on))
    return Call(name, exact, loose, salient, not _WRITTEN.isdisjoint(names))


_known_spelling = functools.lru_cache(maxsize=4096)(squash)


def _spelled(parameter: str) -> str:
    # A longer one is none that is asked for, and would stay in memory.
    return _known_spelling(parameter) if len(parameter) <= MAX_NAME else parameter


def canonical(arguments: Any) -> str:
    """The arguments as canonical JSON: sorted keys, no blanks. What is no JSON stays text."""
    return _canonical(_parsed(arguments)).decode("utf-8", "replace")


def digest(*parts: str | bytes) -> int:
    """A stable 64-bit digest, the same in every process."""
    data = [p.encode("utf-8", "surrogatepass") if isinstance(p, str) else p for p in parts]
    if len(data) != 1:  # the lengths go first, so that no two lists of parts are one text
        data = [b",".join([*(b"%d" % len(one) for one in data), *data])]
    whole = data[0]
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "little")


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        if _LONG_NUMBER.search(arguments) is not None:
            return json.loads(arguments)  # keeps every digit
        return orjson.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return " ".join(arguments.split())


def _canonical(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        return walked(value)


def walked(value: Any) -> bytes:
    """The same for what orjson can't write: long numbers, lone surrogates, deep nesting."""
    parts: list[str] = []
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            parts.append(f"{{{len(one)}")
            for key in sorted(one, key=str, reverse=True):
                left += (one[key], key)
        elif isinstance(one, (list, tuple)):
            parts.append(f"[{len(one)}")
            left += reversed(one)
        else:
            parts.append(repr(one))
    return " ".join(parts).encode("utf-8", "surrogatepass")


def _salient(name: str, arguments: Mapping[str, Any]) -> Any:
    if name in _WHOLE:
        return arguments
    if name == "read_file":
        path = next((one for key, one in arguments.items() if _spelled(key) in _PATHS), None)
        if path is None:
            return arguments
        start, end = _lines(arguments)
        return {"path": path, "from": start // _BUCKET, "to": end // _BUCKET}
    kept = {key: arguments[key] for key in _SALIENT if arguments.get(key) is not None}
    return kept or arguments


def _lines(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """First and last line of a read, from 0."""
    found = [arguments.get(key) for key in ("start_line", "end_line", "offset", "limit")]
    start, end, offset, limit = (
        one if isinstance(one, int) and not isinstance(one, bool) else None for one in found
    )
    first = start if start is not None else offset
    first = max(first - 1, 0) if first is not None else 0
    if end is None:
        end = first + (limit if limit is not None else 1)
    return first, max(end - 1, first)
