"""Reads calls written as JSON: ``{"name": …, "arguments": {…}}``, variants of it, lists of them.

A *shape* function turns one object's members into calls; how much it accepts depends on whether a
mark or only the JSON indicates a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...wire.call import Call
from ...wire.json_text import write
from ..tools import ToolSet
from .base import (
    FENCES,
    Block,
    Format,
    Head,
    Reading,
    Source,
    Stop,
    Where,
    begins_reply,
    end_or,
    json_members,
    json_object,
    read_all,
    skip_space,
)

NAME_KEYS = ("name", "tool_name", "function_name", "tool", "function", "action", "recipient_name")
ARGUMENT_KEYS = (
    "arguments", "parameters", "args", "input", "tool_input", "action_input", "tool_arguments",
    "params", "kwargs", "tool_args", "function_args", "function_arguments",
)  # fmt: skip
NESTED_KEYS = ("function", "function_call", "functionCall", "tool_call", "tool")
LIST_KEYS = ("tool_calls", "tool_uses", "function_calls")
# Keys that may accompany name and arguments. Any other key makes a bare object data, not a call.
OTHER_KEYS = ("type", "id", "index", "tool_call_id", "call_id")
CALL_TYPES = ("function", "function_call", "tool_call", "tool_use")
_KNOWN_KEYS = frozenset((*NAME_KEYS, *ARGUMENT_KEYS, *NESTED_KEYS, *LIST_KEYS, *OTHER_KEYS))

Members = Mapping[str, Any]
Shape = Callable[[Members], list[Call]]

_OPEN_FENCE = re.compile(r"`{3,}[ \t]*\w*[ \t]*\r?\n?")
_NEXT = re.compile(r"[\s,;\[\]}]*(?=\{)")
# Chat templates that escape their own braces show models a call as `{{"name": …}}`.
_SURPLUS = re.compile(r"\{{0,3}(?=\{(?!\{))")
DOUBLED = re.compile(r"\{\{\s*+\\?[\"']name\\?[\"']\s*+:")
# Surplus closing brackets after an object, which are removed from the reply's text.
_CLOSERS = r"(?>(?:\s*+[\]}])*)"
_STRAY = re.compile(_CLOSERS)
_CLOSE_FENCE = re.compile(_CLOSERS + r"\s*+`{3,}(?!\w)")
_REST = re.compile(_CLOSERS + r"(?:\s*`{3,}(?!\w))?")
# Keys may lack their quotes.
_NAME = re.compile(r"\b(?:" + "|".join(NAME_KEYS) + r')["\']?\s*:\s*["\']([^"\'\\\n]{1,200})["\']')
_ARGUMENTS = re.compile(r"\b(?:" + "|".join(ARGUMENT_KEYS) + r')["\']?\s*:\s*')
_HEAD = 2_000  # characters of broken JSON that are searched for the name


def envelope(members: Members) -> list[Call]:
    """Return the calls in one JSON object; [] if the object is no call."""
    for key in LIST_KEYS:
        if key in members and isinstance(members[key], list):
            return [call for item in members[key] for call in _nested(item)]
    for key in NESTED_KEYS:
        if key in members and isinstance(members[key], dict):
            return _nested(members[key])
    for key in NAME_KEYS:
        member = members.get(key)
        if member is not None and isinstance(member, str) and member:
            return [Call(member, arguments_of(members))]
    return []


def marked_envelope(members: Members) -> list[Call]:
    """Like ``envelope``, but also accept ``{name: {arguments}}`` if the name is no known key."""
    if len(members) == 1 and members.keys().isdisjoint(_KNOWN_KEYS):
        (name, member), *_ = members.items()
        return [Call(name, write(member))] if isinstance(member, dict) else []
    return envelope(members)


def bare_envelope(members: Members) -> list[Call]:
    """Return the calls of an object that is certainly a call, even without a mark.

    It has known keys only, and its arguments are an object.
    """
    if not members.keys() <= _KNOWN_KEYS:
        return []
    nested_values = [members[key] for key in NESTED_KEYS if key in members]
    if any(
        isinstance(nested, dict) and not nested.keys() <= _KNOWN_KEYS for nested in nested_values
    ):
        return []  # for example with a description: a tool's definition
    if any(key in members for key in ARGUMENT_KEYS):
        return envelope(members) if arguments_of(members).startswith("{") else []
    if any(isinstance(members[key], (dict, list)) for key in members):
        return envelope(members)
    return []


def is_definition(tools: ToolSet, members: Members) -> bool:
    """Whether an apparent call only defines a tool: its ``parameters`` are a schema."""
    inner = next((members[key] for key in NESTED_KEYS if isinstance(members.get(key), dict)), None)
    if inner is not None:
        return is_definition(tools, inner)
    schema = members.get("parameters")
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        return False
    known = tools.schema_of(str(members.get("name"))).properties
    return schema.get("type") == "object" and "properties" not in known


def arguments_of(members: Members) -> str:
    """Return the arguments' JSON text from a call's object; ``{}`` if it has none."""
    value = next((members[key] for key in ARGUMENT_KEYS if key in members), None)
    if isinstance(value, str):  # the JSON text itself
        return value.strip() or "{}"
    return "{}" if value is None else write(value)


def _nested(value: object) -> list[Call]:
    return envelope(value) if isinstance(value, dict) else []


def read_json(src: Source, head: Head, stop: Stop, mark: str = "") -> Reading:
    """Read the arguments of the tool named in ``head``; without a name, calls with names."""
    if "name" not in head.re.groupindex:
        return read_calls(src, head.end(), stop, marked_envelope)
    arguments, end = object_text(src, head.end(), stop, mark)
    return [Call(head["name"], arguments)], end


def read_calls(src: Source, pos: int, stop: Stop | None = None, shape: Shape = envelope) -> Reading:
    """Read the JSON calls from ``pos`` on: an object, several, or a list, also in a code fence.

    Returns the calls and the index after them; None if there is no call. A call in broken JSON
    ends at the next of ``stop``, with raw text as its arguments; without ``stop`` it is no call.
    """
    text = src.text
    index = skip_space(text, pos)
    fence = _OPEN_FENCE.match(text, index)
    end = fence.end() if fence else index

    def read_one(at: int) -> Reading:
        begun = _NEXT.match(text, at)
        return _read_object(src, begun.end(), stop, shape) if begun else None

    calls, end = read_all(read_one, end)
    return (calls, end_or(_REST.match(text, end), end)) if calls else None


def _read_object(src: Source, pos: int, stop: Stop | None, shape: Shape) -> Reading:
    pos = end_or(_SURPLUS.match(src.text, pos), pos)
    reading = json_members(src, pos)
    if reading is not None:
        calls = shape(reading[0])
        if calls:
            return calls, reading[1]
        src.spend(reading[1] - pos)
        return None
    return _read_broken(src, pos, stop) if stop else None


def _read_broken(src: Source, pos: int, stop: Stop) -> Reading:
    """Read a call's object that does not parse: the name, and the rest as raw arguments."""
    text = src.text
    name = _NAME.search(text, pos, min(pos + _HEAD, len(text)))
    if name is None:
        return None
    end = src.find_stop(stop, pos)
    arguments = _ARGUMENTS.search(text, name.end(), end)
    index = skip_space(text, arguments.end()) if arguments else end
    if not text.startswith("{", index):
        src.spend(end - pos)
        return None
    return [Call(name[1], _raw_arguments(text[index:end]))], end


def _raw_arguments(text: str) -> str:
    """Strip the closers of the call's own object and list from broken arguments."""
    text = text.strip().removesuffix("```").rstrip()
    for opener, closer in (("[", "]"), ("{", "}")):
        if text.endswith(closer) and text.count(closer) > text.count(opener):
            text = text[:-1].rstrip(", \t\r\n")
    return text


def object_text(src: Source, pos: int, stop: Stop, mark: str = "") -> tuple[str, int]:
    """Read arguments that stand alone at ``pos``: their JSON text and the index after them.

    The text is ``{}`` if there are none, and raw text up to the next of ``stop`` if they don't
    parse. ``mark``: the quotation mark of Gemma's dialect.
    """
    text = src.text
    index = skip_space(text, pos)
    fence = _OPEN_FENCE.match(text, index)
    index = skip_space(text, fence.end()) if fence else index
    reading = json_members(src, index, mark) if text.startswith("{", index) else None
    if reading is not None:
        end = end_or((_CLOSE_FENCE if fence else _STRAY).match(text, reading[1]), reading[1])
        written = text[index : reading[1]]
        return written if json_object(written) is not None else write(reading[0]), end
    end = src.find_stop(stop, index)
    raw = text[index:end].strip().removesuffix("```").rstrip()
    return (raw.replace(mark, '"') if mark else raw) or "{}", end


# JSON without a mark, bare or in a fence, that is the whole reply (Llama 3, xLAM, small models).
# In broken JSON it is a call, too, with raw text as its arguments, which the check judges.
# A small model may also repeat the definitions of its tools, in `<tools>`, and write calls there.

_ID_KEYS = ("id", "tool_call_id", "call_id")
_FIRST_KEYS = (*NAME_KEYS, *ARGUMENT_KEYS, *NESTED_KEYS, *LIST_KEYS, *_ID_KEYS, "type")
# The first member: its key, and a string that begins its value. The text may break off after the
# key.
_FIRST = re.compile(
    r"""\{{0,3}+\s*+(["'])(?P<key>[^"'\\\n]{0,40}+)\1\s*+"""
    r"""(?>(?::\s*+(?>(?:(["'])(?P<word>[^"'\\\n]{0,200}+)\3)?))?)"""
)
_WAITS = 240  # give up after so many characters of an incomplete key
# What must follow a name that no tool has, apart from whitespace.
_AFTER_UNKNOWN = tuple(
    f',"{key}":{opening}' for key in ("arguments", "parameters") for opening in ("{", '"{')
)
_SPACE_OR_QUOTE = str.maketrans({**dict.fromkeys(" \t\r\n"), "'": '"'})
_PLAIN = ("```", "```json", "```xml")  # general fences, which may contain any JSON
_BEGUN = re.compile(r"[\s,;]*+(?:(\{)|```[^\n]*+\n?)")
_STOP = re.compile("```|</tool_call>")
_TOOLS = "<tools>"
# Some models put each object into an element of its own.
_NEXT_IN_TOOLS = re.compile(r"(?>(?:[\s,]|</?function>)*)(?=\{)")
_IN_TOOLS = re.compile(r"\s*+<function>")
_TOOLS_END = re.compile(r"(?>(?:\s*+</function>)?)\s*+</tools>")
_LEFT_OVER = re.compile(
    r"(?>(?:\s*+\])?)(?>(?:\s*+</tool_call>)?)(?>(?:\s*+`{3,}+[ \t]*+(?=\n|\Z))?)"
)


def follow(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a call may follow ``{``: a call's key, and after an unknown name another key.

    Only ``name`` may hold a name that is no tool's.
    """
    head = _FIRST.match(text, pos)
    if head is None:
        return len(text) - pos < _WAITS and text[pos:].lstrip(" \t\r\n{")[:1] in ("", '"', "'")
    key, word = head["key"], head["word"]
    if word is None or key not in (*NAME_KEYS, "type"):
        return key in _FIRST_KEYS
    if key == "type" or tools.tool_named(word) is not None:
        return key != "type" or word in CALL_TYPES
    begun = text[head.end() : head.end() + _WAITS].translate(_SPACE_OR_QUOTE)
    return key == "name" and any(whole.startswith(begun[: len(whole)]) for whole in _AFTER_UNKNOWN)


def follow_list(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether an object that may be a call follows ``[`` or a fence's opening line."""
    index = skip_space(text, pos)
    while index < len(text) and text[index] == "[":
        index = skip_space(text, index + 1)
    return index == len(text) or (text[index] == "{" and follow(text, index + 1, tools))


def _read_bare(src: Source, start: int) -> Block | None:
    """Read consecutive objects, lists and fences, up to a tool's definition or any other text.

    They must be the whole reply, unless they begin with a fence for calls such as ``tool_call``.
    """

    def read_one(pos: int) -> Reading:
        reading = read_calls(src, pos, _STOP, partial(_shape, src.tools))
        return reading and (reading[0], end_or(_LEFT_OVER.match(src.text, reading[1]), reading[1]))

    calls, end = read_all(read_one, start)
    marked = src.text.startswith(FENCES, start)
    if not calls or not (marked or _is_whole(src, start, end)):
        return None
    return Block(end, tuple(calls))


def _shape(tools: ToolSet, members: Members) -> list[Call]:
    return [] if is_definition(tools, members) else bare_envelope(members)


def _read_in_tools(src: Source, start: int) -> Block | None:
    """Read the calls among the definitions in ``<tools>``, if that is the whole reply."""

    def read_one(pos: int) -> Reading:
        begun = _NEXT_IN_TOOLS.match(src.text, pos)
        reading = json_members(src, begun.end()) if begun else None
        return reading and (_shape(src.tools, reading[0]), reading[1])

    calls, end = read_all(read_one, start + len(_TOOLS))
    end = end_or(_TOOLS_END.match(src.text, end), end)
    return Block(end, tuple(calls)) if calls and src.is_whole_reply(start, end) else None


def _follow_in_tools(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether an object that may be a call follows ``<tools>``, or the beginning of an element."""
    rest = text[pos : pos + _WAITS].lstrip()
    if "<function>".startswith(rest):
        return True
    return follow_list(text, end_or(_IN_TOOLS.match(text, pos), pos), tools)


def _is_whole(src: Source, start: int, end: int) -> bool:
    """Whether these calls are the whole reply; one more call after them may have been cut off."""
    begun = _BEGUN.match(src.text, end)
    if begun is None:
        return src.is_whole_reply(start, end)
    follows = follow if begun[1] == "{" else follow_list
    may_follow = follows(src.text, begun.end(), src.tools)
    return (
        may_follow
        and "```" not in src.text[begun.end() :]
        and begins_reply(src.text, start, src.floor)
    )


FORMATS = (
    Format("json_fence", (*_PLAIN, *FENCES), _read_bare, Where.FENCE, follow_list),
    Format("bare_json", ("{",), _read_bare, Where.JSON, follow),
    Format("bare_json", ("[",), _read_bare, Where.JSON, follow_list),
    Format("bare_json", (_TOOLS,), _read_in_tools, Where.JSON, _follow_in_tools),
)
