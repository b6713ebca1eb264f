"""Calls as XML elements, as agents that ask for XML teach models to write them.

An element for the tool with one for each parameter (`<read_file><path>…</path></read_file>`: Cline,
Roo Code), or one for the call with the tool's name and the arguments in it
(`<tool_use><name>…</name><arguments>…</arguments></tool_use>`). Arguments may also be JSON.

A tool's own element has no marker, and people ask for XML: it is a call only at the start of a
line, with nothing but the tool's parameters in it, among them all that it needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
from app.tool_calls.formats.json_calls import close, object_text
from app.tool_calls.formats.literals import object_of, skip_space
from app.tool_calls.formats.tagged import trimmed
from app.tool_calls.formats.typed import typed

NAME = "xml_elements"
# Elements around a call, and what may be said of it in their own tag.
WRAPPERS = ("tool_call", "tool_use", "use_tool", "use_mcp_tool", "function_call", "invoke", "tool")
_BARE = tuple(f"<{wrapper}>" for wrapper in WRAPPERS if wrapper not in ("tool_call", "tool"))
_NAMED = tuple(f"<{wrapper} name=" for wrapper in WRAPPERS if wrapper != "invoke")

_NAME_ELEMENTS = ("name", "tool_name", "function_name", "function", "tool")
_ARGUMENT_ELEMENTS = ("arguments", "parameters", "args", "input", "params", "tool_input")

_OPENING = re.compile(r"<([A-Za-z_][\w.-]{0,199})>")
_PARTIAL = re.compile(r"<([A-Za-z_][\w.-]{0,199})?\Z")
_SERVER = re.compile(r"\s*<server_name>[^<\n]{0,200}</server_name>")
_CALLED = re.compile(rf"\s*<({'|'.join(_NAME_ELEMENTS)})>\s*([^<>\n]{{1,200}}?)\s*</\1>")
_GIVEN = re.compile(rf"\s*<({'|'.join(_ARGUMENT_ELEMENTS)})>")
_WORD = re.compile(r"\s*([A-Za-z_][\w.-]{0,199})\s*(?=<)")
_TAG_NAME = re.compile(r"<(\w+) name=")
_NAME_VALUE = re.compile(r"\s*(\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|[^\s>]{1,200})\s*>")
_PARAMETER = re.compile(
    r"<(parameter|param|arg|argument)\s+name\s*=\s*(\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|[^\s>]+)\s*>"
)
# What stands right before an element within another, or within a document.
_AROUND = re.compile(r"(?:<([A-Za-z_][\w.:-]{0,60})(?:\s[^<>]{0,200})?(?<!/)|<[?!][^<>]{0,200})>\Z")
# Closing tags of the same name that one value may hold.
_MAX_INNER = 24


def element_pattern(tools: SpelledTools) -> re.Pattern[str]:
    """The opening tags of elements that are named as one of the tools."""
    names = "|".join(re.escape(name) for name in sorted(tools.schemas, key=len, reverse=True))
    return re.compile(rf"<(?:{names or '(?!)'})>")


def may_be_element(text: str, pos: int, tools: SpelledTools) -> bool:
    """Whether the text ends, from `pos` on, in what may become such a tag."""
    partial = _PARTIAL.match(text, pos)
    begun = partial.group(1) or "" if partial is not None else None
    return begun is not None and any(name.startswith(begun) for name in tools.schemas)


def read_wrapped(src: Source, start: int) -> Block | None:
    """An element for the call, be its name an element, its own tag's, or that of one inside."""
    tag = _OPENING.match(src.text, start)
    named = _TAG_NAME.match(src.text, start) if tag is None else None
    opening = tag or named
    if opening is None:
        return None
    closer = f"</{opening.group(1)}>"
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
    tag = _OPENING.match(src.text, skip_space(src.text, pos))
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
            arguments = object_of(values)
    return Call(name, arguments), close(src.text, end, (own,)) if own != closer else end


def _values(src: Source, name: str, pos: int, closer: str) -> tuple[list[tuple[str, object]], int]:
    """The parameters' elements from `pos` on, and the index after them."""
    schema, properties = src.tools.schema(name), src.tools.properties(name)
    values: list[tuple[str, object]] = []
    end = pos
    while (opening := _opening(src.text, skip_space(src.text, end))) is not None:
        key, own, begin = opening
        stop = _end_of_value(src, begin, own, closer, properties)
        if stop < 0:
            break
        raw = src.text[begin:stop]
        raw = trimmed(raw, "line" if "\n" in raw.strip(" \t") else "all")
        values.append((key, typed(raw, properties.get(key), schema)))
        end = stop + len(own)
    return values, end


def _opening(text: str, pos: int) -> tuple[str, str, int] | None:
    """A parameter's name, the tag that closes it, and where its value begins."""
    plain = _OPENING.match(text, pos)
    if plain is not None:
        return plain.group(1), f"</{plain.group(1)}>", plain.end()
    named = _PARAMETER.match(text, pos)
    return (named.group(2).strip("\"'"), f"</{named.group(1)}>", named.end()) if named else None


def _end_of_value(
    src: Source, pos: int, own: str, closer: str, properties: Mapping[str, object]
) -> int:
    """Where the closing tag stands behind which the next parameter begins, or the call ends.

    A value may hold such tags itself: a file to write that is XML. -1 where there is none.
    """
    text, at = src.text, pos
    for _ in range(_MAX_INNER):
        at = text.find(own, at)
        if at < 0:
            break
        behind = skip_space(text, at + len(own))
        if behind == len(text) or text.startswith(closer, behind):
            return at
        following = _opening(text, behind)
        if following is not None and (not properties or following[0] in properties):
            return at
        at += len(own)
    src.spend(len(text) - pos if at < 0 else at - pos)
    return -1


def read_tool(src: Source, start: int) -> Block | None:
    """A tool's own element, and those that follow it."""
    tag = _OPENING.match(src.text, start)
    name = tag.group(1) if tag else ""
    if tag is None or name not in src.tools.schemas:
        return None
    around = _AROUND.search(lead_of(src.text, start).rstrip())
    if around is not None:  # a document of which it is a part
        end = src.text.find(f"</{around.group(1)}>", tag.end()) if around.group(1) else -1
        return Block(end if end >= 0 else len(src.text), ())
    closer = f"</{name}>"
    at = skip_space(src.text, tag.end())
    properties = src.tools.properties(name)
    if src.text.startswith("{", at):
        arguments, end = object_text(src, at, (closer,))
        whole = src.text.startswith(closer, skip_space(src.text, end))
        return Block(close(src.text, end, (closer,)), (Call(name, arguments),)) if whole else None
    values, end = _values(src, name, at, closer)
    behind = skip_space(src.text, end)
    keys = {key for key, _ in values}
    required = src.tools.schema(name).get("required")
    if not (keys <= properties.keys() and set(required or ()) <= keys and len(keys) == len(values)):
        return None
    if behind < len(src.text) and not src.text.startswith(closer, behind):
        return None
    return Block(close(src.text, end, (closer,)), (Call(name, object_of(values)),))


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
)
# Its openers are the tools' own names.
TOOL = Format(NAME, (), read_tool, Where.ELEMENT, follow_tool)
