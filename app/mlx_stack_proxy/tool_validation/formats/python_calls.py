"""Read calls written as Python: ``name(key="value")``, alone or in a list.

They stand bare (Llama 3.2), in the marks of several formats, or, as Gemma 2/3 write them, in a
```` ```tool_code ```` fence or after ``tool_code =``.
"""

from __future__ import annotations

import re
from typing import Any

from ...wire.call import Call
from ...wire.json_reader import JsonReader
from ...wire.json_text import Unreadable, write
from ..tools import ToolSet
from .base import (
    BRACKETS,
    FENCES,
    Follow,
    Format,
    Head,
    Reading,
    Source,
    Stop,
    Where,
    end_or,
    fitting,
    follows,
    json_members,
    marked,
    named,
    read_all,
    skip_space,
)
from .tagged import typed_as

NAME = re.compile(r"[^\W\d][\w.\-]*")
_BETWEEN = re.compile(r"[\s,;]*")


def read_calls(src: Source, head: Head, stop: Stop | None = None) -> Reading:
    """Read the Python calls after a head, ``[a(x=1), b()]`` or ``a(x=1)``, and the index after.

    None if there is none, or if a list is not closed or holds anything but calls with literal
    arguments.
    """
    text = src.text
    index = skip_space(text, head.end())
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
        bound = _bind(src, name[0], reader.arguments())
    except (Unreadable, RecursionError):
        bound = None
    if bound is None or BRACKETS & reader.used.keys():
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


follow = follows(named(r"\s*+", r"\("))


# A call without any mark, which is the whole reply: `name(city="Paris")`, `call:name{city:Paris}`,
# or, as Functionary writes it, the name and JSON on the next line.

_CALL = "call:"
_ARGUMENTS = re.compile(r"\s*+[({]\s*+(?:\Z|[\"'{}\[\])\d-]|[^\W\d]\w*+\s*+(?:[=:,)]|\Z))")
_BARE_VALUES = re.compile(r"\{[^{}\[\]\"'\n]{1,1000}+\}")
_BARE_VALUE = re.compile(r"(?<![\w.-])([\w.-]++)\s*+:\s*+([^,{}]++)")


def follow_whole(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether the name of an offered tool, and then its arguments, may begin at ``pos``."""
    if len(text) - pos < len(_CALL) and _CALL.startswith(text[pos:]):
        return True
    name = NAME.match(text, pos + len(_CALL) * text.startswith(_CALL, pos))
    if name is None:
        return False
    if name.end() == len(text):
        return any(tool.startswith(name[0]) for tool in tools.names)
    index = skip_space(text, name.end())
    return name[0] in tools and (index == len(text) or bool(_ARGUMENTS.match(text, name.end())))


def _read_whole(src: Source, head: Head, stop: Stop) -> Reading:
    """Read Python's arguments, JSON, or an object of bare values after a tool's name."""
    if (reading := read_call(src, head.start("name"))) is not None:
        return reading
    if not src.text.startswith("{", head.end()):
        return None
    if (members := json_members(src, head.end())) is not None:
        return [Call(head["name"], write(members[0]))], members[1]
    if (bare := _BARE_VALUES.match(src.text, head.end())) is None:
        return None
    pairs = ((pair[1], pair[2].strip()) for pair in _BARE_VALUE.finditer(bare[0]))
    return [
        Call(head["name"], write(typed_as(src.tools.schema_of(head["name"]), pairs)))
    ], bare.end()


_OPENING = re.compile(r"```\w*+[ \t]*+\n|tool_code[ \t]*+[=:\n]")
_CLOSING = r"```[ \t]*+(?=\n|\Z)"


def _whole(openers: tuple[str, ...], where: Where, follow: Follow) -> Format:
    """Make the row of calls that are the whole reply, bare or in a fence."""
    return marked(
        "bare_call", openers,
        rf"(?:{_OPENING.pattern})?(?:{_CALL})?(?P<name>{NAME.pattern})\s*+",
        fitting(_read_whole), ">>>", around=_CLOSING,
        where=where, follow=follow, check=Source.is_whole_reply,
    )  # fmt: skip


# Its opener is an offered tool's name at the reply's beginning, so the row lists none.
WHOLE = _whole((), Where.JSON, follow_whole)

# Code that only calls tools

# Code that may stand before a call: comments, `x =`, `print(`; and after it: `)`, `print(x)`.
_STATEMENT = re.compile(r"(?:[\s;]|#[^\n]*+\n)*+(?:\w++[ \t]*+=[ \t]*+)?(?:print\(\s*+)?")
# `tool_code = name(`, or `name(` on the next line.
_FOLLOWS_CODE = rf"\s*+\Z|[ \t]*+[=:\n]{named(_STATEMENT.pattern, '[(]')}"


def _is_closed(src: Source, start: int, end: int) -> bool:
    """Whether code ends that has to: in a fence."""
    text, fenced = src.text, src.text.startswith("```", start)
    return not fenced or not text[end:].strip() or text[start:end].rstrip().endswith("```")


def _code(openers: tuple[str, ...], where: Where, follow: Follow | None = None) -> Format:
    """Make the row of code that calls tools, in a fence or after ``tool_code``."""
    return marked(
        "gemma_tool_code", openers, rf"(?:{_OPENING.pattern})?{_STATEMENT.pattern}", read_calls,
        r"\)|print\(\s*+\w++\s*+\)", around=_CLOSING,
        where=where, follow=follow, check=_is_closed,
    )  # fmt: skip


def _follow_fenced(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a fence of Python may begin with a call."""
    index = skip_space(text, pos)
    return index == len(text) or follow_whole(text, index, tools)


FORMATS = (
    marked(
        "pythonic", ("[",), "", read_calls,
        where=Where.JSON, follow=follow, check=Source.is_whole_reply,
    ),
    _code(FENCES, Where.FENCE),
    _whole(("```python", "```py", "```"), Where.FENCE, _follow_fenced),
    _code(("tool_code",), Where.LINE, follows(_FOLLOWS_CODE)),
)  # fmt: skip
