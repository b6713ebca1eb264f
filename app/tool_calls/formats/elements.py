"""Calls as XML elements, as agents that ask for XML teach models to write them.

An element for the tool with one for each parameter (`<read_file><path>…</path></read_file>`: Cline,
Roo Code), or one for the call with the tool's name and the arguments in it
(`<tool_use><name>…</name><arguments>…</arguments></tool_use>`). Arguments may also be JSON.

A tool's own element has no marker, and people ask for XML: it is a call only at the start of a
line, outside any document, with nothing but the tool's parameters in it, among them all that it
needs, and where the tool's name is none that a document's element has.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache

from app.tool_calls.formats import hermes, python_calls
from app.tool_calls.formats.base import (
    MAX_CALLS,
    Begins,
    Block,
    Call,
    Follow,
    Format,
    Source,
    SpelledTools,
    Where,
)
from app.tool_calls.formats.context import lead_of
from app.tool_calls.formats.element_values import OPENING, Values, end_of_value, opening_at
from app.tool_calls.formats.json_calls import close, object_text
from app.tool_calls.formats.literals import json_object, skip_space

from ...frozen import frozen

NAME = "xml_elements"
# Elements around a call, and what may be said of it in their own tag.
WRAPPERS = ("tool_call", "tool_use", "use_tool", "use_mcp_tool", "function_call")
_BARE = tuple(f"<{one}>" for one in (*WRAPPERS[1:], "invoke", "tool_calls", "function_calls"))
_NAMED = tuple(f"<{wrapper} name=" for wrapper in WRAPPERS)
_LISTED = "<tool name="  # which lists of tools have, too
# A name that no element of a document has: `read_file`, `readFile`. `note` and `Button` are some.
OWN_NAME = re.compile(r"[A-Za-z]\w*[_.-]\w|[a-z]\w*[A-Z]")

_NAME_ELEMENTS = ("name", "tool_name", "function_name", "function", "tool")
_ARGUMENT_ELEMENTS = ("arguments", "parameters", "args", "input", "params", "tool_input")

_SERVER = re.compile(r"\s*<server_name>[^<\n]{0,200}</server_name>")
_CALLED = re.compile(rf"\s*<({'|'.join(_NAME_ELEMENTS)})>\s*+([^<>\n]{{1,200}}?)\s*+</\1>")
_GIVEN = re.compile(rf"\s*<({'|'.join(_ARGUMENT_ELEMENTS)})>")
_WORD = re.compile(r"\s*([A-Za-z_][\w.-]{0,199})\s*(?=<)")
_TAG_NAME = re.compile(r"<(\w+) name=")
_NAME_VALUE = re.compile(r"\s*(\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|[^\s>]{1,200})\s*>")
# Tags around an element: those that close, anywhere; those that open, before anything else.
_AROUND = re.compile(
    r"</(?P<end>[A-Za-z_][\w.:-]{0,60})\s*>"
    r"|(?:^|(?<=>))[ \t]*<(?P<begin>[A-Za-z_][\w.:-]{0,60})(?:\s[^<>]{0,200})?(?<!/)>",
    re.MULTILINE,
)
_HEADING = re.compile(r"^#{1,6}[ \t].*", re.MULTILINE)
_PROLOG = re.compile(r"<[?!][^<>]{0,200}>\Z")
_VOID = frozenset(("br", "hr", "img", "input", "link", "meta"))


@frozen
class OwnElements:
    """The tools of a request whose elements need no marker: their names, sorted, and their tags."""

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


def read_wrapped(src: Source, start: int) -> Block | None:
    """An element for the call, be its name an element, its own tag's, or that of one inside."""
    tag = OPENING.match(src.text, start)
    named = _TAG_NAME.match(src.text, start) if tag is None else None
    opening = tag or named
    if opening is None:
        return None
    closer = f"</{opening.group(1)}>"
    if opening.group(1) in src.tools.schemas and (own := read_tool(src, start)) and own.calls:
        return own
    if named is not None:
        value = _NAME_VALUE.match(src.text, named.end())
        if value is None:
            return None
        found = _read_arguments(src, value.group(1).strip("\"'"), value.end(), closer)
        return Block(close(src.text, found[1], (closer,)), (found[0],)) if found else None
    calls: list[Call] = []
    end = opening.end()
    while len(calls) < MAX_CALLS:
        found = _read_inside(src, end, closer)
        if found is None:
            break
        calls.append(found[0])
        end = found[1]
    if calls:
        return Block(close(src.text, end, (closer,)), tuple(calls))
    python = python_calls.read_calls(src, end)
    return Block(close(src.text, python[1], (closer,)), tuple(python[0])) if python else None


def _read_inside(src: Source, pos: int, closer: str) -> tuple[Call, int] | None:
    server = _SERVER.match(src.text, pos)
    pos = server.end() if server else pos
    called = _CALLED.match(src.text, pos)
    if called is not None:
        return _read_arguments(src, called.group(2), called.end(), closer)
    tag = OPENING.match(src.text, skip_space(src.text, pos))
    if tag is not None and src.tools.resolve(tag.group(1)) is not None:
        own = f"</{tag.group(1)}>"
        found = _read_arguments(src, tag.group(1), tag.end(), own)
        return (found[0], close(src.text, found[1], (own,))) if found else None
    word = _WORD.match(src.text, pos)
    if word is None or not src.tools.properties(word.group(1)):
        return None
    return _read_arguments(src, word.group(1), word.end(), closer)


def _read_arguments(src: Source, name: str, pos: int, closer: str) -> tuple[Call, int] | None:
    """The call of `name` with the arguments at `pos`; what can't be read is passed on raw."""
    given = _GIVEN.match(src.text, pos)
    if given is not None and given.group(1) not in src.tools.properties(name):
        pos, own = given.end(), f"</{given.group(1)}>"
    else:
        own = closer
    at = skip_space(src.text, pos)
    if src.text.startswith(("{", "```"), at):
        arguments, end = object_text(src, at, (own, closer))
    else:
        values, end = _values(src, name, at, own)
        stop = src.find_first((own, closer), end)
        if skip_space(src.text, end) < min(stop, len(src.text)):
            arguments, end = src.text[at:stop], stop  # something else: the model has to say it anew
        else:
            arguments = values.arguments()
    return Call(name, arguments), close(src.text, end, (own,)) if own != closer else end


def _values(src: Source, name: str, pos: int, closer: str) -> tuple[Values, int]:
    """The parameters' elements from `pos` on, and the index after them."""
    schema, properties = src.tools.schema(name), src.tools.properties(name)
    values = Values(schema, properties)
    end = pos
    while (opening := opening_at(src.text, skip_space(src.text, end))) is not None:
        stop = -1
        if opening.key not in values.keys:
            stop = end_of_value(src, opening, closer, properties)
        if stop < 0:
            break
        values.add(opening.key, src.text[opening.end : stop])
        end = stop + len(opening.closer)
    return values, end


def read_tool(src: Source, start: int) -> Block | None:
    """A tool's own element, and those that follow it."""
    tag = OPENING.match(src.text, start)
    name = tag.group(1) if tag else ""
    if tag is None or name not in src.tools.schemas or _is_described(src.text, start, name):
        return None
    around = _document(src, start)
    if around is not None:
        return around
    closer = f"</{name}>"
    at = skip_space(src.text, tag.end())
    if src.text.startswith("{", at):
        arguments, end = object_text(src, at, (closer,))
        whole = src.text.startswith(closer, skip_space(src.text, end))
        return Block(close(src.text, end, (closer,)), (Call(name, arguments),)) if whole else None
    values, end = _values(src, name, at, closer)
    behind = skip_space(src.text, end)
    closed = src.text.startswith(closer, behind)
    right = src.tools.takes(name, values.keys)
    if not (right and (closed or (values.keys and behind == len(src.text)))):
        return None
    return Block(close(src.text, end, (closer,)), (Call(name, values.arguments()),))


def _is_described(text: str, start: int, name: str) -> bool:
    """Whether what begins at `start` stands under a heading that has the tool's name."""
    return any(name in line for line in _HEADING.findall(lead_of(text, start)))


def _document(src: Source, start: int) -> Block | None:
    """The rest of the document of which what begins at `start` is a part; None where it is none."""
    lead = lead_of(src.text, start).rstrip()
    lead = lead[lead.rfind("```") + 3 :] if "```" in lead else lead
    opened: list[str] = []
    for tag in _AROUND.finditer(lead):
        name = tag.group("end") or tag.group("begin")
        if name in src.tools.schemas and OWN_NAME.match(name):
            opened.clear()  # a call, whatever was in it
        elif tag.group("begin"):
            opened += () if name in _VOID else (name,)
        elif name in opened:
            del opened[opened.index(name) :]
    if not opened:
        return Block(len(src.text), ()) if _PROLOG.search(lead) else None
    end = src.find(f"</{opened[-1]}>", start)
    return Block(end if end >= 0 else len(src.text), ())


def read_listed(src: Source, start: int) -> Block | None:
    """The same as in `read_wrapped`, of which only what is right in all is a call."""
    around = _document(src, start)
    block = around or read_wrapped(src, start)
    for call in block.calls if block is not None else ():
        arguments = json_object(call.arguments)
        if arguments is None or not src.tools.takes(call.name, arguments):
            return None
    return block


def follow_tool(text: str, pos: int, tools: SpelledTools) -> Begins:
    """Behind a tool's opening tag: JSON, one of its parameters, or the end of the element."""
    name = text[text.rindex("<", 0, pos) + 1 : pos - 1]
    at = skip_space(text, pos)
    if at == len(text):
        return Begins.MAYBE
    if text[at] == "{":
        return Begins.YES
    properties = tools.properties(name)
    return hermes.one_of(text, at, (f"</{name}>", *(f"<{key}>" for key in properties)))


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


def _follow_wrapper(*more: str) -> Follow:
    wanted = tuple(f"<{name}>" for name in ("server_name", *_NAME_ELEMENTS))

    def follow(text: str, pos: int, tools: SpelledTools) -> Begins:
        """A name's element, or a tool's; or what a tool's name and its parameter's element are."""
        at = skip_space(text, pos)
        if at == len(text):
            return Begins.MAYBE
        if text[at] == "<":
            return hermes.one_of(text, at, (*wanted, *(f"<{name}>" for name in tools.schemas)))
        if "(" in more and (found := python_calls.follow(text, at, tools)) is not Begins.NO:
            return found
        word = _WORD.match(text, at)
        if word is None:
            rest = text[at : at + 240]
            begun = not rest.strip().strip("_.-").isalnum() or len(rest) >= 240
            return Begins.NO if begun or not tools.could_start(rest.strip()) else Begins.MAYBE
        keys = tuple(f"<{key}>" for key in tools.properties(word.group(1)))
        return hermes.one_of(text, word.end(), keys) if keys else Begins.NO

    return follow


FORMATS = (
    Format(NAME, (hermes.OPENER,), read_wrapped, Where.TAG, _follow_wrapper()),
    Format(NAME, _BARE, read_wrapped, Where.TAG, _follow_wrapper("(")),
    Format(NAME, _NAMED, read_wrapped, Where.TAG, follow_named),
    Format(NAME, (_LISTED,), read_listed, Where.ELEMENT, follow_named),
)
# Its openers are the tools' own names.
TOOL = Format(NAME, (), read_tool, Where.ELEMENT, follow_tool)
