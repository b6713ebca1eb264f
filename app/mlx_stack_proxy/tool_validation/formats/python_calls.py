"""Reads calls written as Python: ``name(key="value")``, alone or in a list.

They occur bare (Llama 3.2), in the marks of several formats, or, as Gemma 2/3 write them, in a
```` ```tool_code ```` fence or after ``tool_code =``.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from ...wire.call import Call
from ...wire.json_reader import JsonReader
from ...wire.json_text import Unreadable, write
from ..names import MAX_NAME
from ..tools import ToolSet
from .base import (
    BRACKETS,
    FENCES,
    Block,
    Format,
    Reading,
    Source,
    Where,
    end_or,
    json_members,
    json_object,
    read_all,
    skip_space,
)
from .tagged import typed, types_of

NAME = re.compile(r"[^\W\d][\w.\-]*")
_BETWEEN = re.compile(r"[\s,;]*")


def read_calls(src: Source, pos: int) -> Reading:
    """Read the Python calls from ``pos`` on, ``[a(x=1), b()]`` or ``a(x=1)``, and the index after.

    None if there is none, or if a list is unclosed or contains anything but calls with literal
    arguments.
    """
    text = src.text
    index = skip_space(text, pos)
    listed = text.startswith("[", index)

    def read_one(at: int) -> Reading:
        return read_call(src, end_or(_BETWEEN.match(text, at), at))

    calls, end = read_all(read_one, index + listed)
    if listed:
        end = end_or(_BETWEEN.match(text, end), end)
        return (calls, end + 1) if calls and text.startswith("]", end) else None
    return (calls, end) if calls else None


def read_call(src: Source, pos: int) -> Reading:
    """Read the call at ``pos`` and the index after it; None if there is none."""
    name = NAME.match(src.text, pos)
    opening = skip_space(src.text, name.end()) if name else pos
    if name is None or not src.text.startswith("(", opening):
        return None
    reader = JsonReader(src.text, opening, python=True)
    try:
        arguments = reader.arguments()
    except (Unreadable, RecursionError):
        arguments = None
    bound = (
        None
        if arguments is None or BRACKETS & reader.used.keys()
        else _bind(src, name[0], arguments)
    )
    if bound is None:
        src.spend(max(reader.position - pos, 0) + 1)
        return None
    # Llama 3.1 calls its built-in tools as `brave_search.call(query="…")`.
    bare = name[0] if src.tools.tool_named(name[0]) is not None else name[0].removesuffix(".call")
    return [Call(bare, write(bound))], reader.position


def _bind(src: Source, name: str, arguments: list[tuple[str | None, Any]]) -> dict[str, Any] | None:
    """Return the arguments by name; None if a positional one can't be assigned.

    A single positional value goes to the tool's only parameter, or to the first if no other is
    required; a single object of declared names is all the arguments.
    """
    bound = {key: value for key, value in arguments if key is not None}
    if len(bound) == len(arguments):
        return bound
    schema = src.tools.schema_of(name)
    parameters = list(schema.properties)
    value = arguments[0][1]
    if len(arguments) > 1:
        return None
    if isinstance(value, dict) and (not parameters or value.keys() <= set(parameters)):
        return value
    is_first = len(parameters) == 1 or list(schema.required) == parameters[:1] != []
    return {parameters[0]: value} if is_first else None


def follow(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a call of one of the tools may begin at ``pos``: its name, then a bracket."""
    return follow_name(text, skip_space(text, pos), tools, "(")


def follow_name(text: str, pos: int, tools: ToolSet, brackets: str) -> bool:
    """Whether a tool's name, then one of ``brackets``, is at ``pos`` or may still follow."""
    name = NAME.match(text, pos)
    if name is None:
        return pos == len(text)
    if name.end() == len(text):
        return len(name[0]) <= MAX_NAME
    index = skip_space(text, name.end())
    bracket = index == len(text) or text[index] in brackets
    return bracket and tools.tool_named(name[0].removesuffix(".call")) is not None


def _read_list(src: Source, start: int) -> Block | None:
    """Read ``[a(x=1), b()]``, or several such lists, if they are the whole reply."""
    calls, end = read_all(partial(read_calls, src), start)
    return Block(end, tuple(calls)) if calls and src.is_whole_reply(start, end) else None


# An unmarked call that is the whole reply: `name(city="Paris")`, `call:name{city:Paris}`, or, as
# Functionary writes it, the name and JSON on the next line.

_CALL = "call:"
_ARGUMENTS = re.compile(r"\s*+[({]\s*+(?:\Z|[\"'{}\[\])\d-]|[^\W\d]\w*+\s*+(?:[=:,)]|\Z))")


def follow_whole(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether the name of an offered tool, and then its arguments, may begin at ``pos``."""
    if len(text) - pos <= len(_CALL) and _CALL.startswith(text[pos:]):
        return True
    name = NAME.match(text, pos + len(_CALL) * text.startswith(_CALL, pos))
    if name is None:
        return False
    if name.end() == len(text):
        return any(tool.startswith(name[0]) for tool in tools.names)
    index = skip_space(text, name.end())
    return name[0] in tools and (index == len(text) or bool(_ARGUMENTS.match(text, name.end())))


def _read_whole(src: Source, start: int) -> Block | None:
    """Read calls of offered tools with arguments that they accept, and nothing else.

    They may be in a fence.
    """

    def read_one(pos: int) -> Reading:
        index = pos + len(_CALL) * src.text.startswith(_CALL, pos)
        reading = read_call(src, index) or _read_object(src, index)
        if reading is None:
            return None
        (call,), end = reading
        arguments = json_object(call.arguments)
        fits = arguments is not None and src.tools.takes(call.name, arguments)
        return ([call], end_or(_NEXT.match(src.text, end), end)) if fits else None

    fence = _OPENING.match(src.text, start)
    calls, end = read_all(read_one, end_or(fence, start))
    end = end_or(fence and _CLOSING.match(src.text, end), end)
    return Block(end, tuple(calls)) if calls and src.is_whole_reply(start, end) else None


_BARE_VALUES = re.compile(r"\{[^{}\[\]\"'\n]{1,1000}+\}")
_BARE_VALUE = re.compile(r"(?<![\w.-])([\w.-]++)\s*+:\s*+([^,{}]++)")
_NEXT = re.compile(r"\s*+(?>(?:>>>)?)\s*+")


def _read_object(src: Source, pos: int) -> Reading:
    name = NAME.match(src.text, pos)
    opening = skip_space(src.text, name.end()) if name else pos
    if name is None or not src.text.startswith("{", opening):
        return None
    if (reading := json_members(src, opening)) is not None:
        return [Call(name[0], write(reading[0]))], reading[1]
    if (bare := _BARE_VALUES.match(src.text, opening)) is None:
        return None
    schema, values = src.tools.schema_of(name[0]), {}
    for pair in _BARE_VALUE.finditer(bare[0]):
        values[pair[1]] = typed(pair[2].strip(), types_of(schema.properties.get(pair[1])))
    return [Call(name[0], write(values))], bare.end()


# Its opener is an offered tool's name at the reply's beginning, so the row lists none.
WHOLE = Format("bare_call", (), _read_whole, Where.JSON, follow_whole)

# Code that only calls tools

_OPENING = re.compile(r"```\w*+[ \t]*+\n|tool_code[ \t]*+[=:\n]")
# Code that may precede a call: comments, `x =`, `print(`; and that may follow: `)`, `print(x)`.
_STATEMENT = re.compile(r"(?>(?:[\s;]|#[^\n]*+\n)*)(?:\w++[ \t]*+=[ \t]*+)?(?:print\(\s*+)?")
_WORD_BEGUN = re.compile(r"\w*+[ \t]*+\Z")  # `print`, or `x` of `x =`
_PRINTED = re.compile(r"\s*+\)?(?:\s*+print\(\s*+\w++\s*+\))?")
_CLOSING = re.compile(r"\s*+(?:```[ \t]*+(?=\n|\Z)|\Z)")


def _read_code(src: Source, start: int) -> Block | None:
    """Read the calls of a fence that holds only calls, or those after ``tool_code``."""
    text = src.text

    def read_one(pos: int) -> Reading:
        reading = read_calls(src, end_or(_STATEMENT.match(text, pos), pos))
        return reading and (reading[0], end_or(_PRINTED.match(text, reading[1]), reading[1]))

    calls, end = read_all(read_one, end_or(_OPENING.match(text, start), start))
    closed = _CLOSING.match(text, end)
    if not calls or (closed is None and text.startswith("```", start)):
        return None
    return Block(closed.end() if closed else end, tuple(calls))


def _follow_code(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether ``tool_code = name(``, or ``name(`` on the next line, may call a tool."""
    opening = _OPENING.match(text, pos - len("tool_code"))
    statement = _STATEMENT.match(text, opening.end()) if opening else None
    if statement is None:
        return skip_space(text, pos) == len(text)
    begun = _WORD_BEGUN.match(text, statement.end())
    return begun is not None or follow(text, statement.end(), tools)


def _follow_fenced(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a fence of Python may begin with a call."""
    index = skip_space(text, pos)
    return index == len(text) or follow_whole(text, index, tools)


FORMATS = (
    Format("pythonic", ("[",), _read_list, Where.JSON, follow),
    Format("gemma_tool_code", FENCES, _read_code, Where.FENCE),
    Format(
        "bare_call", ("```python", "```py", "```"), _read_whole, Where.FIRST_FENCE, _follow_fenced
    ),
    Format("gemma_tool_code", ("tool_code",), _read_code, Where.LINE, _follow_code),
)
