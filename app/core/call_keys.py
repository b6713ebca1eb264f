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

from ..tool_calls.names import squash

_LONG = 19  # digits: perhaps more than orjson's 64 bits
_LONG_NUMBER: Final = re.compile(rf"\d{{{_LONG}}}")
_DIGIT: Final = re.compile(r"\d")
# Parameters' names without case and separators.
_NOISE: Final = frozenset(
    {"description", "explanation", "reason", "reasoning", "rationale", "thought", "thoughts"}
    | {"requestid", "traceid", "correlationid", "invocationid", "idempotencykey", "nonce"}
    | {"callid", "toolcallid", "timestamp", "ts", "now", "currenttime", "requestedat", "createdat"}
)
_SALIENT: Final = ("path", "url", "query", "command", "pattern", "glob", "cmd")
_WHOLE: Final = frozenset({"write_file", "str_replace"})
_BUCKET: Final = 200  # lines
# Parameters of a call whose names are remembered, and all their characters.
_FEW: Final = 32
_SHORT: Final = 512
# Parameters that carry what is written into a file, and those that name one.
_WRITTEN: Final = frozenset(
    {"content", "contents", "newcontent", "filetext", "inserttext", "newstring", "newstr"}
    | {"newsource", "newtext", "replacement", "replace", "patch", "diff", "edits", "changes"}
    | {"codeedit"}
)
_from_bytes: Final = int.from_bytes
_PATHS: Final = frozenset({"path", "filepath", "file", "filename", "absolutepath", "targetfile"})


class Call(NamedTuple):
    """One call, as digests. ``writes``: its arguments carry text to be written somewhere."""

    name: str
    exact: int
    loose: int
    salient: int
    writes: bool = False


class _Parameters(NamedTuple):
    """What the names of a call's parameters say. ``kept``: all but noise; ``salient``: in order."""

    kept: tuple[str, ...]
    salient: tuple[str, ...]
    path: str | None
    write: bool


def read(name: str, arguments: Any) -> Call:
    """The digests of a call; ``arguments``: JSON text as on the wire, or what it holds."""
    value = _parsed(arguments)
    exact = digest(name, _canonical(value))
    if not isinstance(value, dict):
        return Call(name, exact, exact, exact)
    names = tuple(value)
    # Longer ones would stay in memory.
    are_short = len(names) <= _FEW and sum(map(len, names)) <= _SHORT
    given = _parameters(names) if are_short else _parameters.__wrapped__(names)
    loose = exact
    if given.kept and len(given.kept) < len(value):
        loose = digest(name, _canonical({key: value[key] for key in given.kept}))
    acted_on = _salient(name, value, given)
    salient = exact if acted_on is value else digest(name, _canonical(acted_on))
    return Call(name, exact, loose, salient, given.write)


@functools.lru_cache(maxsize=1024)
def _parameters(names: tuple[str, ...]) -> _Parameters:
    """An agent's tools have few lists of parameters, and their calls come again and again."""
    spelled = {name: squash(name) for name in names}
    return _Parameters(
        tuple(name for name in names if spelled[name] not in _NOISE),
        tuple(name for name in _SALIENT if name in spelled),
        next((name for name in names if spelled[name] in _PATHS), None),
        not _WRITTEN.isdisjoint(spelled.values()),
    )


def canonical(arguments: Any) -> str:
    """The arguments as canonical JSON: sorted keys, no blanks. What is no JSON stays text."""
    return _canonical(_parsed(arguments)).decode("utf-8", "replace")


def digest(*parts: str | bytes) -> int:
    """A stable 64-bit digest, the same in every process."""
    data = [p.encode("utf-8", "surrogatepass") if isinstance(p, str) else p for p in parts]
    if len(data) != 1:  # the lengths go first, so that no two lists of parts are one text
        data = [b",".join([b"%d" % len(one) for one in data] + data)]
    return _from_bytes(blake2b(data[0], digest_size=8).digest(), "little")


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        # Of so many digits in a row one stands at such a place.
        if _DIGIT.search(arguments[_LONG - 1 :: _LONG]) and _LONG_NUMBER.search(arguments):
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


def _salient(name: str, arguments: Mapping[str, Any], given: _Parameters) -> Any:
    if name in _WHOLE:
        return arguments
    if name == "read_file":
        if given.path is None:
            return arguments
        start, end = _lines(arguments)
        return {"path": arguments[given.path], "from": start // _BUCKET, "to": end // _BUCKET}
    kept = {key: arguments[key] for key in given.salient if arguments[key] is not None}
    return kept if kept and len(kept) < len(arguments) else arguments


def _lines(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """First and last line of a read, from 0."""
    found = [arguments.get(key) for key in ("start_line", "end_line", "offset", "limit")]
    start, end, offset, limit = [one if type(one) is int else None for one in found]
    first = start if start is not None else offset
    first = max(first - 1, 0) if first is not None else 0
    if end is None:
        end = first + (limit if limit is not None else 1)
    return first, max(end - 1, first)
