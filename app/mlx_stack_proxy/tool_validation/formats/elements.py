"""Calls as XML elements, as agents that ask for XML teach models to write them.

An element for the tool with one for each parameter (`<read_file><path>…</path></read_file>`: Cline,
Roo Code), or one for the call with the tool's name and the arguments in it
(`<tool_use><name>…</name><arguments>…</arguments></tool_use>`). Arguments may also be JSON.

A tool's own element has no mark, and people ask for XML: it is a call only where no document has
an element of that name (`read_file`, `readFile`; not `note` or `Button`), at the start of a line
and not indented, with parameters of the tool in it and nothing else, among them all that it needs.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache

from ...frozen import frozen
from .base import (
    MAX_CALLS,
    Begins,
    Block,
    Call,
    Follow,
    Format,
    Source,
    SpelledTools,
    Where,
    one_of,
)
from .json_calls import close
from .json_tags import TOOL_CALL
from .literals import json_object, skip_space
from .tagged import Tags, read_call

NAME = "xml_elements"
# Elements around a call, and what may be said of it in their own tag.
WRAPPERS = ("tool_call", "tool_use", "use_tool", "use_mcp_tool", "function_call")
_BARE = tuple(f"<{one}>" for one in (*WRAPPERS[1:], "invoke", "tool_calls", "function_calls"))
# A name that no element of a document has.
OWN_NAME = re.compile(r"[A-Za-z]\w*[_.-]\w|[a-z]\w*[A-Z]")

_NAMES = ("name", "tool_name", "function_name", "function", "tool")
_SERVER = re.compile(r"\s*+<server_name>[^<\n]{0,200}+</server_name>")
_CALLED = re.compile(rf"\s*+<({'|'.join(_NAMES)})>\s*+([^<>\n]{{1,200}}?)\s*+</\1>")
_GIVEN = re.compile(r"\s*+<(arguments|parameters|args|input|params|tool_input)>")
_OPENING = re.compile(r"<([A-Za-z_][\w.-]{0,199})>")
_NAMED = re.compile(r"<(\w++) name=\s*+(\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|[^\s>]{1,200})\s*+>")
_NAME_VALUE = re.compile(r"\s*+(\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|[^\s>]{1,200})\s*+>")
_TAG = re.compile(r"<(/?)([A-Za-z_][\w.:-]{0,60})[^<>]{0,200}+>")
_LOOKED_AT = 4_000  # characters behind an element
_LEFT_OVER = ("tool_call", "tool_calls", "s")  # end tags that a server leaves behind calls
_TAGS = Tags(
    re.compile(
        r"<(?P<tag>[A-Za-z_][\w.-]{0,199})"
        r"(?:\s++name\s*+=\s*+(?P<key>\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|[^\s>]++))?\s*+>"
    ),
    trim="element",
    named=True,
)


@frozen
class OwnElements:
    """The tools of a request whose elements need no mark: their names, sorted, and their tags."""

    names: tuple[str, ...]
    tags: re.Pattern[str]

    def may_begin(self, text: str, pos: int) -> bool:
        """Whether the text ends, from `pos` on, in what may become such a tag."""
        begun = text[pos + 1 :]
        at = bisect_left(self.names, begun)
        return at < len(self.names) and self.names[at].startswith(begun)


@lru_cache(maxsize=256)
def own_elements(names: tuple[str, ...]) -> OwnElements:
    """Those of the tools of these names."""
    own = tuple(sorted(name for name in names if OWN_NAME.match(name)))
    tags = "|".join(re.escape(name) for name in own) or "(?!)"
    return OwnElements(own, re.compile(f"<(?:{tags})>"))


def read_tool(src: Source, start: int) -> Block | None:
    """A tool's own element, with all that the tool needs."""
    tag = _OPENING.match(src.text, start)
    if tag is None or tag.group(1) not in src.tools.schemas or not _begins_line(src.text, start):
        return None
    closer = f"</{tag.group(1)}>"
    found = read_call(src, tag.group(1), tag.end(), _TAGS, (closer,))
    if found is None or not _fits(src, found[0]):
        return None
    end = close(src.text, found[1], (closer,))
    if end == found[1] and src.text[end:].strip():
        return None
    return None if _is_in_document(src.text, end) else Block(end, (found[0],))


def _begins_line(text: str, pos: int) -> bool:
    """Whether it is not indented, or stands behind another element."""
    return not pos or text[pos - 1] in "\n>"


def _is_in_document(text: str, pos: int) -> bool:
    """Whether an end tag stands behind `pos` whose element began before: no call has one around."""
    opened: list[str] = []
    for tag in _TAG.finditer(text, pos, pos + _LOOKED_AT):
        if not tag[1]:
            opened.append(tag[2])
        elif tag[2] in opened:
            del opened[opened.index(tag[2]) :]
        else:
            return tag[2] not in _LEFT_OVER
    return False


def _fits(src: Source, call: Call) -> bool:
    arguments = json_object(call.arguments)
    return arguments is not None and src.tools.takes(call.name, arguments)


def read_wrapped(src: Source, start: int) -> Block | None:
    """An element for the call, be its name an element, its own tag's, or that of one inside."""
    named = _NAMED.match(src.text, start)
    tag = named or _OPENING.match(src.text, start)
    if tag is None:
        return None
    if tag.group(1) in src.tools.schemas and (own := read_tool(src, start)):
        return own
    closer = f"</{tag.group(1)}>"
    calls: list[Call] = []
    end = tag.end()
    while len(calls) < MAX_CALLS:
        found = (
            _read_arguments(src, named.group(2).strip("\"'"), end, closer)
            if named
            else _read_inside(src, end, closer)
        )
        if found is None:
            break
        calls.append(found[0])
        end = found[1]
        if named:
            break
    return Block(close(src.text, end, (closer,)), tuple(calls)) if calls else None


def _read_inside(src: Source, pos: int, closer: str) -> tuple[Call, int] | None:
    server = _SERVER.match(src.text, pos)
    pos = server.end() if server else pos
    called = _CALLED.match(src.text, pos)
    if called is not None:
        return _read_arguments(src, called.group(2), called.end(), closer)
    tag = _OPENING.match(src.text, skip_space(src.text, pos))
    if tag is not None and src.tools.resolve(tag.group(1)) is not None:
        own = f"</{tag.group(1)}>"
        found = _read_arguments(src, tag.group(1), tag.end(), own)
        return (found[0], close(src.text, found[1], (own,))) if found else None
    return None


def _read_arguments(src: Source, name: str, pos: int, closer: str) -> tuple[Call, int] | None:
    """The call of `name` with the arguments at `pos`; what can't be read is passed on raw."""
    given = _GIVEN.match(src.text, pos)
    last: tuple[str, ...] = (closer,)
    if given is not None and given.group(1) not in src.tools.properties(name):
        pos, last = given.end(), (f"</{given.group(1)}>", closer)
    found = read_call(src, name, pos, _TAGS, last)
    if found is None:
        end = src.find_first(last, pos)
        found = Call(name, src.text[pos:end].strip()), end
    return found[0], close(src.text, found[1], last[:-1])


def follow_tool(text: str, pos: int, tools: SpelledTools) -> Begins:
    """Behind a tool's opening tag: JSON, one of its parameters, or the end of the element."""
    name = text[text.rindex("<", 0, pos) + 1 : pos - 1]
    at = skip_space(text, pos)
    if at == len(text):
        return Begins.MAYBE
    keys = tools.properties(name)
    return one_of(text, at, ("{", f"</{name}>", "<parameter ", *(f"<{key}>" for key in keys)))


def follow_named(text: str, pos: int, tools: SpelledTools) -> Begins:
    """A tool's name, the end of the tag, and arguments, as JSON or as elements."""
    value = _NAME_VALUE.match(text, pos)
    if value is None:
        return Begins.MAYBE if "\n" not in text[pos:] and len(text) - pos < 240 else Begins.NO
    if tools.resolve(value.group(1).strip("\"'")) is None:
        return Begins.NO
    at = skip_space(text, value.end())
    if at == len(text):
        return Begins.MAYBE
    return Begins.YES if text[at] in "{<`" else Begins.NO


def _follow_wrapper() -> Follow:
    wanted = tuple(f"<{name}>" for name in ("server_name", *_NAMES))

    def follow(text: str, pos: int, tools: SpelledTools) -> Begins:
        """A name's element, or a tool's."""
        at = skip_space(text, pos)
        if at == len(text):
            return Begins.MAYBE
        return one_of(text, at, (*wanted, *(f"<{name}>" for name in tools.schemas)))

    return follow


FORMATS = (
    Format(NAME, (TOOL_CALL, *_BARE), read_wrapped, follow=_follow_wrapper()),
    Format(NAME, tuple(f"<{one} name=" for one in WRAPPERS), read_wrapped, follow=follow_named),
)
# Its openers are the tools' own names.
TOOL = Format(NAME, (), read_tool, Where.LINE, follow_tool)
