"""Lists of tools known again by their bytes.

An agent offers the same tools with every turn, often in more bytes than all that is new. Where a
body has a list of tools as one before it had, that list is taken for it: it isn't parsed, checked
and written once more, and all requests that offer it share one.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from ..kept import kept
from ..tool_calls.tool_list import ToolList
from .key_places import places

NAME: Final = "known_tools"  # in the log, and in the counter of faults
_LEAST: Final = 1024  # bytes; a shorter list is read in no time
MOST: Final = 64  # lists,
MOST_BYTES: Final = 1024 * 1024  # and as JSON: parsed, they weigh ten times as much, 30 at most
_NAME: Final = b'"tools"'
_COLON: Final = re.compile(rb"\s{0,16}:\s{0,16}")
_BEGUN: Final = b'{"tools":'
_STYLE: Final = 40  # bytes of a list that tell how it is written
# Stands for the tools in a body that is read without them; nobody can send it.
_PLACE: Final = secrets.token_hex(16)
_PLACE_JSON: Final = orjson.dumps(_PLACE)


class KnownTools:
    """Bounded; threads may share one."""

    def __init__(self) -> None:
        self._lists: list[ToolList] = []  # the one that came last is the first
        self._lock = threading.Lock()

    def taken(self, raw: bytes) -> tuple[bytes, ToolList] | None:
        """A body without its tools, and these, where they are known. See :meth:`put`."""
        if not self._lists or len(raw) < _LEAST:
            return None
        for at in places(raw, _NAME, _COLON):
            for one in self._lists:
                if raw.startswith(one.written, at):
                    self._keep(one)
                    rest = b"".join((raw[:at], _PLACE_JSON, raw[at + len(one.written) :]))
                    return rest, one
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
        written = _written(raw, tools)
        if written is not None and _LEAST <= len(written) <= MOST_BYTES:
            self._keep(ToolList(tools, kept(written)))

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


def _written(raw: bytes, tools: list[Any]) -> bytes | None:
    """The bytes in a body that are these tools; None where they aren't found.

    Looked for in the spellings of most clients, not with a parser that tells where a value ends:
    such a one is slow, and what it is given is anybody's.
    """
    for at in places(raw, _NAME, _COLON):
        if len(raw) - at < _LEAST:
            break
        for written in _spellings(tools, raw[at : at + _STYLE]):
            if raw.startswith(written, at):
                return written
    return None


def _spellings(tools: list[Any], begun: bytes) -> Iterator[bytes]:
    """Some tools as clients write them. ``begun``: how the list in question begins."""
    if b'": ' in begun:  # Python's own
        yield json.dumps(tools).encode()
        return
    try:
        compact = orjson.dumps({"tools": tools})[len(_BEGUN) : -1]  # as deep as in a request
    except orjson.JSONEncodeError:  # it reads four times the depth that it writes
        return
    yield compact
    escaped = compact.replace(b"<", rb"\u003c").replace(b">", rb"\u003e").replace(b"&", rb"\u0026")
    if len(escaped) > len(compact):
        yield escaped  # Go's own
