"""Recognize texts that hold a call which no format reads.

``broken_call`` is certain: the whole reply is a mark, an offered tool's name, and more text up to a
closing sign. ``unread_call`` is a doubt, for the text may only show an example. It looks behind the
reasoning, outside quotes and inline code, for a tool's name near a mark that opens or closes calls,
and for JSON or Python that calls a tool with all that it requires.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from ..wire.thoughts import REASONING_ENDS, behind_thoughts
from .formats import python_calls
from .formats.base import CLOSING_TAG, Call, Source, Where, dumps, json_members, json_object
from .formats.context import closer_at
from .formats.json_calls import read_calls
from .formats.table import FENCES, ROWS, TRIGGER, own_tags
from .tools import ToolSet

MAX_TEXT: Final = 8_000  # characters; a longer text counts as an answer, whatever it holds
MAX_TRIED: Final = 8  # marks, and places of code, that are examined
NEARBY: Final = 120  # characters before or behind a mark in which the tool's name must stand

CLOSE: Final = 40  # characters before an object in which the tool's name may stand

_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*+")
# The places where JSON or a Python call may begin.
_CODE: Final = re.compile(r"\{(?=\s*+[\"'])|(?<![\w.-])(?=[A-Za-z_][\w.-]*+\()")
_FENCED: Final = re.compile(r"```\w*+\n(.*)\n```", re.DOTALL)
# Any vendor's token: `<|…|>`, `<｜…｜…>`, `<word|…>`, `]<]…[>[`. Each year brings new ones.
_VENDOR: Final = r"<[|｜][^<>\n]{1,60}>|<\w{1,40}\|[^<>\n]{0,60}>|\]<\][^<>\n]{1,40}\[>\["
_MARK: Final = re.compile(f"{CLOSING_TAG}|{TRIGGER.pattern}|{_VENDOR}")
_IS_TOKEN: Final = re.compile(_VENDOR)


def unread_call(text: str, tools: ToolSet) -> str | None:
    """Return the name of the tool whose call ``text`` may hold; None if it holds none."""
    if not tools or len(text) > MAX_TEXT:
        return None
    answer = behind_thoughts(text)
    return _marked(answer, tools) or _as_code(answer, tools) or _as_object(answer.strip(), tools)


def broken_call(text: str, tools: ToolSet) -> bool:
    """Whether a whole reply is a call that can't be read, from its mark to a closing sign."""
    answer = behind_thoughts(text).strip()
    mark = TRIGGER.match(answer)
    rows = ROWS.get(mark[0], ()) if mark else ()
    marked = bool(rows) and all(row.where is Where.MARK for row in rows)
    ends = answer.endswith((">", "]", "}"))
    return marked and ends and _named(answer, 0, NEARBY, tools) is not None


def _marked(text: str, tools: ToolSet) -> str | None:
    """Return the first tool that is named near a mark."""
    openers = {*ROWS, *own_tags(tools.names)} - {*FENCES}
    marks = (
        mark
        for mark in _MARK.finditer(text)
        if mark[0] in openers
        or (mark[0][:2] == "</" and mark[0] not in REASONING_ENDS)
        or _IS_TOKEN.fullmatch(mark[0])
    )
    quoted = 0  # index of the last quote's end
    for mark in itertools.islice(marks, MAX_TRIED):
        if mark.start() < quoted:
            continue
        if closer := closer_at(text, mark.start(), final=True):
            quoted = text.find(closer, mark.end())
        else:
            start = mark.start() - NEARBY if mark[0].startswith("</") else mark.start()
            if name := _named(text, max(0, start), mark.end() + NEARBY, tools):
                return name
    return None


def _named(text: str, start: int, end: int, tools: ToolSet) -> str | None:
    """Return the first tool that is named between two indexes."""
    return next(filter(None, map(tools.tool_named, _NAME.findall(text, start, end))), None)


def _as_code(text: str, tools: ToolSet) -> str | None:
    """Return the tool that Python code, JSON with its name, or JSON behind its name calls."""
    src = Source(text, tools)
    calls: list[Call] = []
    for match in itertools.islice(_CODE.finditer(text), MAX_TRIED):
        index = match.start()
        if closer_at(text, index, final=True) is not None:
            continue
        python = None if text[index] == "{" else python_calls.read_calls(src, index)
        reading = python or read_calls(src, index)
        calls += reading[0] if reading else _behind_name(src, index)
    for call in calls:
        name, arguments = tools.tool_named(call.name), json_object(call.arguments)
        if name is not None and arguments is not None and tools.takes(name, arguments):
            return name
    return None


def _behind_name(src: Source, index: int) -> list[Call]:
    """Return the call whose arguments begin at ``index``, behind a tool's name."""
    words = _NAME.findall(src.text, max(0, index - CLOSE), index)
    name = next((word for word in reversed(words) if word in src.tools), None)
    reading = json_members(src, index) if name else None
    return [Call(name, dumps(reading[0]))] if name and reading and reading[0] else []


def _as_object(text: str, tools: ToolSet) -> str | None:
    """Return the tool whose name is among the values of a text that is one JSON object."""
    fenced = _FENCED.fullmatch(text)
    members = json_object(fenced[1] if fenced else text)
    if members is None:
        return None
    names = [tool for tool in members.values() if isinstance(tool, str) and tool in tools]
    return names[0] if names else None
