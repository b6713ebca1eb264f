"""Recognises texts with a call that no format reads.

``broken_call`` is certain: the whole reply is a mark, an offered tool's name, and more text up to a
closing symbol. ``unread_call`` is a doubt, because the text may only show an example. It searches
the text after the reasoning, outside quotes and inline code, for a tool's name near a mark that
opens or closes calls, and for JSON or Python that calls a tool with everything that it requires.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from ..engine.verdicts import CallFailure
from ..wire.call import Call
from ..wire.json_text import write
from ..wire.thoughts import REASONING_ENDS, after_thoughts
from . import explain
from .formats import python_calls
from .formats.base import CLOSING_TAG, Reading, Source, json_members, json_object, skip_space
from .formats.context import closer_at
from .formats.json_calls import bare_envelope, read_calls
from .formats.table import FENCES, ROWS, TRIGGER, begins_calls, own_tags
from .tools import ToolSet

UNREAD: Final = "unread_call"  # the kind of the doubt
MAX_TEXT: Final = 8_000  # characters; a longer text counts as an answer, whatever it contains
MAX_TRIED: Final = 8  # marks, and places of code, that are examined
NEARBY: Final = 120  # characters before or after a mark in which the tool's name must occur

CLOSE: Final = 40  # characters before an object in which the tool's name may occur

_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*+")
# The places where JSON or a Python call may begin.
_JSON: Final = re.compile(r"\{(?=\s*+[\"'])")
_CODE: Final = re.compile(rf"{_JSON.pattern}|(?<![\w.-])(?=[A-Za-z_][\w.-]*+\()")
_ELEMENT: Final = re.compile(r"<([A-Za-z_][\w.-]{0,199}+)\b[^<>]{0,2000}(?:/>|>.*</\1>)", re.DOTALL)
_KEY: Final = re.compile(r"<([A-Za-z_][\w.-]{0,199}+)>|\b([A-Za-z_][\w.-]{0,199}+)=")
_FENCED: Final = re.compile(r"```\w*+\n(.*)\n```", re.DOTALL)
# Any vendor's token: `<|…|>`, `<｜…｜…>`, `<word|…>`, `]<]…[>[`. Each year brings new ones. And
# a tag that contains a name, without the `<` that some servers remove.
_VENDOR: Final = (
    r"<[|｜][^<>\n]{1,60}>|<\w{1,40}\|[^<>\n]{0,60}>|\]<\][^<>\n]{1,40}\[>\["
    r"|\[(?i:tool[_ ]calls?)\s*+:"  # as transcripts show calls
    r"|\b(?:invoke|function|tool)(?:\s+name)?\s*+=\s*+[\"']?+[\w.-]{1,200}+[\"']?\s*+>"
)
_RESULT: Final = re.compile(
    r"<\|?((?:tool|function)_(?:response|result|output)s?)\|?>(?:(?!</?\|?\1).)*(?:<(?:/|/?\|)\1\|?>)?",
    re.DOTALL,
)
_MARK: Final = re.compile(f"{CLOSING_TAG}|{TRIGGER.pattern}|{_VENDOR}")
_IS_TOKEN: Final = re.compile(_VENDOR)


def unread(tool: str) -> CallFailure:
    """Return the doubt about a text that may hold a call of ``tool``."""
    error = f'a call of "{explain.shortened(tool)}" stands in the text, and none was made'
    return CallFailure(tool, UNREAD, error)


def unread_call(text: str, tools: ToolSet) -> str | None:
    """Return the name of the tool whose call ``text`` may contain, or None."""
    if not tools or len(text) > MAX_TEXT:
        return None
    answer = after_thoughts(text)
    whole = answer.strip()
    return (
        _near_mark(answer, tools)
        or _in_code(answer, tools)
        or _in_object(whole, tools)
        or _in_element(whole, tools)
    )


def made_up_result(text: str) -> CallFailure | None:
    """Doubt an answer that is only a tool's result in a template's marks, which no model may give.

    None: the text is no such answer.
    """
    if len(text) > MAX_TEXT or _RESULT.fullmatch(after_thoughts(text).strip()) is None:
        return None
    return CallFailure("", UNREAD, "no tool was called, so there is no result")


def unread_around_calls(text: str, tools: ToolSet) -> str | None:
    """Return the tool whose call the ``text`` around other calls may contain, or None.

    Python code counts as prose there, because models announce a call that way.
    """
    if not tools or len(text) > MAX_TEXT:
        return None
    answer = after_thoughts(text)
    return _near_mark(answer, tools) or _in_code(answer, tools, _JSON) or _nameless(answer)


def _nameless(text: str) -> str | None:
    """Return the word before a mark that an object follows, or the mark itself."""
    for mark in itertools.islice(TRIGGER.finditer(text), MAX_TRIED):
        start, end = mark.span()
        opens = begins_calls(mark[0]) and _JSON.match(text, skip_space(text, end))
        if opens and closer_at(text, start, final=True) is None:
            words = _NAME.findall(text, max(0, start - CLOSE), start)
            return words[-1] if words else mark[0]
    return None


def broken_call(text: str, tools: ToolSet) -> bool:
    """Whether a whole reply is an unreadable call, from its mark to a closing symbol."""
    answer = after_thoughts(text).strip()
    mark = TRIGGER.match(answer)
    marked = mark is not None and begins_calls(mark[0])
    ends = answer.endswith((">", "]", "}"))
    return marked and ends and _tool_between(answer, 0, NEARBY, tools) is not None


def _near_mark(text: str, tools: ToolSet) -> str | None:
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
            if name := _tool_between(text, max(0, start), mark.end() + NEARBY, tools):
                return name
    return None


def _tool_between(text: str, start: int, end: int, tools: ToolSet) -> str | None:
    """Return the first tool that is named between two indexes."""
    return next(filter(None, map(tools.tool_named, _NAME.findall(text, start, end))), None)


def _in_code(text: str, tools: ToolSet, places: re.Pattern[str] = _CODE) -> str | None:
    """Return the tool that Python code, JSON with its name, or JSON after its name calls.

    JSON that has a tool's name and arguments, and nothing else, is a call even if these are wrong.
    """
    src = Source(text, tools)
    calls: list[Call] = []
    for match in itertools.islice(places.finditer(text), MAX_TRIED):
        index = match.start()
        if closer_at(text, index, final=True) is not None:
            continue
        is_json = text[index] == "{"
        certain = read_calls(src, index, shape=bare_envelope) if is_json else None
        named = (tools.tool_named(call.name) for call in certain[0]) if certain else ()
        if name := next(filter(None, named), None):
            return name  # whether its arguments are valid or not
        reading = read_calls(src, index) if is_json else python_calls.read_calls(src, index)
        if name := _tool_by_shape(text, index, reading, tools):
            return name
        calls += reading[0] if reading else _after_name(src, index)
    for call in calls:
        name, arguments = tools.tool_named(call.name), json_object(call.arguments)
        if name is not None and arguments is not None and tools.takes(name, arguments):
            return name
    return None


_ENVELOPE: Final = re.compile(
    r"\{\s*+[\"']name[\"']\s*+:\s*+[\"']([\w.-]++)[\"']\s*+,"
    r"\s*+[\"'](?:arguments|parameters)[\"']\s*+:\s*+\{"
)


def _tool_by_shape(text: str, index: int, reading: Reading, tools: ToolSet) -> str | None:
    """Return the tool that is called here by shape alone, whatever its arguments are.

    That is JSON that begins with a tool's name and then arguments, even if it breaks off; or a call
    in Python that has its lines to itself.
    """
    if text[index] == "{":
        begun = _ENVELOPE.match(text, index)
        return tools.tool_named(begun[1]) if begun else None
    if reading is None:
        return None
    calls, end = reading
    line, rest = text.rfind("\n", 0, index) + 1, text.find("\n", end)
    after = text[end:rest] if rest >= 0 else text[end:]
    alone = not text[line:index].strip() and not after.strip()
    return tools.tool_named(calls[0].name) if alone and calls else None


def _after_name(src: Source, index: int) -> list[Call]:
    """Return the call whose arguments begin at ``index``, after a tool's name."""
    words = _NAME.findall(src.text, max(0, index - CLOSE), index)
    name = next((word for word in reversed(words) if word in src.tools), None)
    reading = json_members(src, index) if name else None
    return [Call(name, write(reading[0]))] if name and reading and reading[0] else []


def _in_element(text: str, tools: ToolSet) -> str | None:
    """Return the tool whose own element a text is, with everything required as elements or keys.

    Such elements are calls if their name can't be a document's; others may be.
    """
    element = _ELEMENT.fullmatch(text)
    if element is None or element[1] not in tools:
        return None
    given = {one[1] or one[2] for one in _KEY.finditer(text, element.end(1))}
    keys = given.intersection(tools.parameters(element[1]))
    return element[1] if tools.takes(element[1], keys) else None


def _in_object(text: str, tools: ToolSet) -> str | None:
    """Return the tool whose name is a value in a text that is one JSON object."""
    fenced = _FENCED.fullmatch(text)
    members = json_object(fenced[1] if fenced else text)
    if members is None:
        return None
    names = [tool for tool in members.values() if isinstance(tool, str) and tool in tools]
    return names[0] if names else None
