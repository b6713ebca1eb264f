"""Recognize texts that hold a call which no format reads.

``broken_call`` is certain: the whole reply is a mark, an offered tool's name, and more text up to a
closing sign. ``unread_call`` is a doubt, for the text may only show an example. It looks outside
quotes, inline code and reasoning for a mark with a tool's name behind it (also in a code fence), a
closing mark with a tool's name before it, and JSON or Python with all the parameters that a tool
requires, such as an object behind the tool's name.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Final

from ..wire.thoughts import behind_thoughts
from .formats import python_calls
from .formats.base import Call, Source, Where, dumps, json_members, json_object
from .formats.context import closer_at
from .formats.json_calls import bare_envelope, read_calls
from .formats.scanner import Scanner
from .tools import ToolSet

MAX_TEXT: Final = 8_000  # characters; a longer text counts as an answer, whatever it holds
MAX_TRIED: Final = 8  # places examined of each kind: code, closing marks, fences
NEARBY: Final = 120  # characters behind a mark in which the tool's name must stand
CLOSE: Final = 40  # characters before an object in which the tool's name may stand

_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*+")
# The places where JSON or a Python call may begin.
_CODE: Final = re.compile(r"\{(?=\s*+[\"'])|(?<![\w.-])(?=[A-Za-z_][\w.-]*+\()")
_CLOSING: Final = re.compile(r"</(?:tool_calls?|function|invoke|parameter|arg_value)>")
_FENCED: Final = re.compile(r"```\w*+\n(.*)\n```", re.DOTALL)


def unread_call(text: str, tools: ToolSet) -> str | None:
    """Return the name of the tool whose call ``text`` may hold; None if it holds none."""
    if not tools or len(text) > MAX_TEXT:
        return None
    answer = behind_thoughts(text)
    return (
        _marked(text, tools)
        or _fenced(answer, tools)
        or _closed(answer, tools)
        or _as_code(answer, tools)
        or _as_object(answer.strip(), tools)
    )


def broken_call(text: str, tools: ToolSet) -> bool:
    """Whether a whole reply is a call that can't be read, from its mark to a closing sign."""
    answer = behind_thoughts(text).strip()
    if not answer.endswith((">", "]", "}")):
        return False
    candidate = Scanner(answer, tools, every_mark=True).advance(final=True)
    if candidate is None or candidate.start:
        return False
    marked = all(row.where is Where.MARK for row in candidate.rows)
    return marked and _named(answer, 0, tools) is not None


def _marked(text: str, tools: ToolSet) -> str | None:
    scanner = Scanner(text, tools, every_mark=True)
    while (candidate := scanner.advance(final=True)) is not None:
        if (name := _named(text, candidate.start, tools)) is not None:
            return name
        scanner.reject(candidate)
    return None


def _named(text: str, at: int, tools: ToolSet) -> str | None:
    """Return the first tool that is named behind the mark at ``at``."""
    return _first_tool(_NAME.findall(text, at, at + NEARBY), tools)


def _first_tool(words: Iterable[str], tools: ToolSet) -> str | None:
    return next(filter(None, map(tools.tool_named, words)), None)


def _closed(text: str, tools: ToolSet) -> str | None:
    """Return the first tool that is named before a closing mark, outside code fences."""
    outside = "".join(text.split("```")[::2])
    for found in itertools.islice(_CLOSING.finditer(outside), MAX_TRIED):
        if closer_at(outside, found.start(), final=True) is None:
            return _first_tool(_NAME.findall(outside, 0, found.start()), tools)
    return None


def _fenced(text: str, tools: ToolSet) -> str | None:
    """Return the tool that is named behind a mark in one of the text's code fences."""
    inside = (fence.partition("\n")[2] for fence in text.split("```")[1 : 2 * MAX_TRIED : 2])
    return next(filter(None, (_marked(code, tools) for code in inside)), None)


def _as_code(text: str, tools: ToolSet) -> str | None:
    """Return the tool that Python code, JSON with its name, or JSON behind its name calls."""
    src = Source(text, tools)
    calls: list[Call] = []
    for found in itertools.islice(_CODE.finditer(text), MAX_TRIED):
        at = found.start()
        if closer_at(text, at, final=True) is not None:
            continue
        python = None if text[at] == "{" else python_calls.read_calls(src, at)
        named = python or read_calls(src, at, shape=bare_envelope)
        calls += named[0] if named else _behind_name(src, at)
    for call in calls:
        name, arguments = tools.tool_named(call.name), json_object(call.arguments)
        if name is not None and arguments is not None and tools.takes(name, arguments):
            return name
    return None


def _behind_name(src: Source, at: int) -> list[Call]:
    words = _NAME.findall(src.text, max(0, at - CLOSE), at)
    name = next((one for one in reversed(words) if one in src.tools), None)
    found = json_members(src, at) if name else None
    return [Call(name, dumps(found[0]))] if name and found and found[0] else []


def _as_object(text: str, tools: ToolSet) -> str | None:
    """Return the tool that a text which is one JSON object calls.

    A tool's name must be among the object's values, or ``arguments`` must fit a tool though the
    ``name`` beside it is no tool's.
    """
    fenced = _FENCED.fullmatch(text)
    given = json_object(fenced[1] if fenced else text)
    if given is None:
        return None
    names = [one for one in given.values() if isinstance(one, str) and one in tools]
    arguments = given.get("arguments", given.get("parameters"))
    if not names and "name" in given and len(given) == 2 and isinstance(arguments, dict):
        names = [one for one in tools.names if arguments and tools.takes(one, arguments)]
    return names[0] if names else None
