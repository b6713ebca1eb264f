"""Lists of tools known again by their bytes.

An agent offers the same tools with every turn, often in more bytes than all that is new. Where a
body has a list of tools as one before it had, that list is taken for it: it isn't parsed, checked,
compiled and written once more, and all requests that offer it share one.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from ..kept import kept
from ..tool_calls.tool_list import ToolList
from .exact_json import value_at

NAME: Final = "known_tools"  # in the log, and in the counter of faults
_LEAST: Final = 1024  # bytes; a shorter list is read in no time
MOST: Final = 64  # lists,
MOST_BYTES: Final = 2 * 1024 * 1024  # and as JSON; parsed, they weigh some ten times as much
# A list that isn't written as orjson would is looked for by a slower parser, up to this size.
_SCANNED: Final = 256 * 1024
_KEYS: Final = 2  # of the name `tools`, where one is inside of something
_KEY: Final = b'"tools"'
_COLON: Final = re.compile(rb"\s*:\s*")
# Stands for the tools in a body that is read without them; nobody can send it.
_PLACE: Final = secrets.token_hex(16)
_PLACE_JSON: Final = orjson.dumps(_PLACE)


class KnownTools:
    """Bounded; threads may share one.

    ``report``: told of a fault in here. Then the body is read as if nothing was known.
    """

    def __init__(self, report: Callable[[str, Exception], None] | None = None) -> None:
        self._report = report
        self._lists: list[ToolList] = []  # the one that came last is the first
        self._lock = threading.Lock()

    def taken(self, raw: bytes) -> tuple[bytes, ToolList] | None:
        """A body without its tools, and these, where they are known. See :meth:`put`."""
        if not self._lists or len(raw) < _LEAST:
            return None
        try:
            return self._taken(raw)
        except Exception as error:
            self._failed(error)
            return None

    def put(self, body: dict[str, Any], tools: ToolList) -> bool:
        """Put the tools into what the rest was parsed to; whether they belong there.

        Where they don't, the list stood in some other place, and the body is to be read whole.
        """
        if body.get("tools") != _PLACE:
            return False
        body["tools"] = tools
        return True

    def learn(self, raw: bytes, body: Mapping[str, Any]) -> None:
        """Keep the tools of a request, which are good, and how they stand in its body."""
        tools = body.get("tools")
        if type(tools) is not list or len(raw) < _LEAST:
            return
        try:
            written = _written(raw, tools)
            if written is not None and _LEAST <= len(written) <= MOST_BYTES:
                self._keep(ToolList(tools, written))
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self._report is None:
            raise error
        self._report(NAME, error)

    def _taken(self, raw: bytes) -> tuple[bytes, ToolList] | None:
        for at in _places(raw):
            for one in self._lists:
                if raw.startswith(one.written, at):
                    self._keep(one)
                    rest = b"".join((raw[:at], _PLACE_JSON, raw[at + len(one.written) :]))
                    return rest, one
        return None

    def _keep(self, one: ToolList) -> None:
        """As the one that came last; the oldest go where it is too many, or too much."""
        if self._lists and self._lists[0] is one:
            return
        with self._lock:
            lists = [one, *(other for other in self._lists if other.written != one.written)]
            size = sum(len(each.written) for each in lists)
            while len(lists) > MOST or size > MOST_BYTES:
                size -= len(lists.pop().written)
            self._lists = lists


def _places(raw: bytes) -> list[int]:
    """Where the value of a key ``tools`` may begin."""
    found: list[int] = []
    key = raw.find(_KEY)
    while key >= 0 and len(found) < _KEYS:
        colon = _COLON.match(raw, key + len(_KEY))
        if colon is not None:
            found.append(colon.end())
        key = raw.find(_KEY, key + len(_KEY))
    return found


def _written(raw: bytes, tools: list[Any]) -> bytes | None:
    """The bytes in a body that are these tools; None where they aren't found."""
    try:
        compact = orjson.dumps(tools)
    except orjson.JSONEncodeError:  # which reads four times the depth that it writes
        return None
    for at in _places(raw):
        if raw.startswith(compact, at):
            return kept(compact)
        if len(compact) > _SCANNED:
            continue
        # What is escaped or indented is longer; a character that is cut at the end is no matter.
        text = raw[at : at + 4 * len(compact)].decode("utf-8", "ignore")
        try:
            found, end = value_at(text, 0)
            if orjson.dumps(found) == compact:
                return text[:end].encode()
        except (ValueError, TypeError, RecursionError):
            continue
    return None
