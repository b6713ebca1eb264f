"""Translates a request's tools into functions, and calls of the functions back.

A function stays a function. A namespace's functions get its name as a prefix (``ns__name``),
because chat completions have no namespaces. A custom tool takes raw text: it becomes a function
with that text as its only parameter and its grammar in the description. If the grammar fixes the
words with which a text begins and ends (as a patch's does), the parameter's schema has them as
``x-frame``, and a call without them is doubted. The grammar itself is not enforced.

Tools that a server would run (search, code, images) or that have no schema are left out. A request
that has only such tools, or forces one, is refused, because the client could not distinguish the
reply from one by a model that has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
from msgspec import Struct

from ...errors import invalid
from ..call import as_function, object_in
from ..fields import (
    FRAME,
    STRING,
    Check,
    each,
    has_type,
    members,
    require,
    string,
    string_or,
)

Tool = dict[str, Any]
_INPUT: Final = "input"  # a custom tool's parameter
_NO_PARAMETERS: Final = {"type": "object", "properties": {}}
_COPIED: Final = ("description", "strict")
_REFERENCE: Final[Mapping[str, Check]] = {"type": STRING, "name": STRING}
_TOOL: Final = members(**_REFERENCE, description=STRING)
# The fields whose types the translation relies on.
_CHECKS: Final = {
    "tools": each(members(**_REFERENCE, description=STRING, tools=each(_TOOL))),
    "tool_choice": string_or(members(**_REFERENCE, mode=STRING, tools=each(members(**_REFERENCE)))),
}
# In a Lark grammar: a rule's name and body, and a quoted word.
_RULE: Final = re.compile(r"^(\w{1,80}):(.{0,2000})$", re.MULTILINE)
_WORD: Final = re.compile(r'\s*"((?:[^"\\\n]|\\.){1,80})"')


class Shape(Struct, frozen=True):
    """How a request offers a tool."""

    name: str  # the tool's own name, without its namespace
    namespace: str = ""  # "": none
    custom: bool = False  # the tool is a custom tool, not a function


class Shapes(dict[str, Shape]):
    """A request's tools by the names that the model sees."""

    def __missing__(self, name: str) -> Shape:
        """Return the tool with this bare name in the only namespace that has it."""
        matches = [shape for shape in self.values() if shape.name == name]
        return matches[0] if len(matches) == 1 else Shape(name)


class Tools(Struct, frozen=True):
    """A request's tools, translated."""

    fields: dict[str, Any]  # the fields about tools for the chat completion's request
    shapes: Shapes
    left_out: tuple[str, ...]  # the types of the tools that are not offered


def tools_of(body: Mapping[str, Any]) -> Tools:
    """Translate a request's tools and its tool choice. Raises :class:`ProxyError` (400)."""
    require(body, _CHECKS)
    raw_tools = body.get("tools") or []
    offered: dict[str, Tool] = {}
    shapes = Shapes()
    for shape, tool in _functions(raw_tools):
        name = tool["function"]["name"]
        offered[name], shapes[name] = tool, shape
    left_out = tuple(
        dict.fromkeys(tool["type"] for tool in raw_tools if tool["type"] not in _KINDS)
    )
    if left_out and not offered:
        raise _not_run(", ".join(left_out), "tools")
    choice, allowed = _choice(body.get("tool_choice"), shapes)
    fields: dict[str, Any] = {}
    if chosen := [offered[name] for name in offered if name in allowed]:
        fields["tools"] = chosen
        if choice is not None:
            fields["tool_choice"] = choice
        if (parallel := body.get("parallel_tool_calls")) is not None:
            fields["parallel_tool_calls"] = parallel
    elif choice not in (None, "auto", "none"):
        raise invalid("`tool_choice` requires a tool, but none is offered", "tool_choice")
    return Tools(fields, shapes, left_out)


def flat_name(name: str, namespace: Any) -> str:
    """Return a tool's name as the model sees it."""
    return f"{namespace}__{name}" if isinstance(namespace, str) and namespace else name


def custom_arguments(text: str) -> str:
    """Write a custom tool's raw text as the arguments of its function."""
    return orjson.dumps({_INPUT: text}).decode()


def custom_text(arguments: str) -> str:
    """Return a custom tool's raw text from its function's arguments; other arguments as is."""
    text = (object_in(arguments) or {}).get(_INPUT)
    return text if isinstance(text, str) else arguments


def _functions(raw_tools: list[Tool]) -> Iterator[tuple[Shape, Tool]]:
    for position, tool in enumerate(raw_tools):
        path = f"tools[{position}]"
        if string(tool, "type", path) != "namespace":
            yield from _function(tool, "", path)
            continue
        namespace = string(tool, "name", path)
        for inner_position, inner_tool in enumerate(tool.get("tools") or ()):
            yield from _function(inner_tool, namespace, f"{path}.tools[{inner_position}]")


def _function(tool: Tool, namespace: str, path: str) -> Iterator[tuple[Shape, Tool]]:
    kind = string(tool, "type", path)
    if kind not in ("function", "custom"):
        return
    name = string(tool, "name", path)
    shape = Shape(name, namespace, kind == "custom")
    function: Tool = {"name": flat_name(name, namespace)}
    function |= {key: tool[key] for key in _COPIED if tool.get(key) is not None}
    if shape.custom:
        function |= _of_text(tool)
    else:
        function["parameters"] = tool.get("parameters") or _NO_PARAMETERS
    yield shape, as_function(function)


def _of_text(tool: Tool) -> Tool:
    """Return the description and parameters of a custom tool's function."""
    described = tool.get("description") or ""
    parameter: dict[str, Any] = {"type": "string"}
    format_ = tool.get("format")
    if has_type(format_, "grammar"):
        grammar = str(format_.get("definition"))
        syntax = format_.get("syntax")
        described += f"\n\n`{_INPUT}` is a text of this grammar ({syntax}):\n{grammar}"
        if frame := _frame(grammar):
            parameter[FRAME] = frame
    parameters = {
        "type": "object",
        "properties": {_INPUT: parameter},
        "required": [_INPUT],
        "additionalProperties": False,
    }
    return {"description": described.strip(), "parameters": parameters}


def _frame(grammar: str) -> list[str]:
    """Return the words with which every text of a Lark grammar begins and ends; [] if unknown.

    They are known if the first and the last rule in ``start`` each begin with a quoted word.
    """
    rules: dict[str, str] = dict(_RULE.findall(grammar))
    ends = rules.get("start", "").split()
    matches = [_WORD.match(rules.get(end, "")) for end in (ends[0], ends[-1])] if ends else []
    words = [word[1] for word in matches if word and "\\" not in word[1]]
    return words if len(words) == 2 else []


def _choice(choice: Any, shapes: Mapping[str, Shape]) -> tuple[Any, frozenset[str]]:
    """Return the tool choice for chat completions, and the names of the tools it allows."""
    everything = frozenset(shapes)
    if choice is None or isinstance(choice, str):
        return choice, everything
    if choice.get("type") == "allowed_tools":
        allowed = [_named(reference, shapes) for reference in choice.get("tools") or ()]
        return choice.get("mode", "auto"), frozenset().union(*allowed)
    names = _named(choice, shapes)
    if choice.get("type") not in ("function", "custom"):
        raise _not_run(str(choice.get("type")), "tool_choice")
    if len(names) != 1:
        raise invalid("`tool_choice` names a tool that is not offered", "tool_choice")
    return as_function({"name": next(iter(names))}), everything


def _named(reference: Mapping[str, Any], shapes: Mapping[str, Shape]) -> frozenset[str]:
    """Return the names of the tools in a choice; a namespace stands for all its tools."""
    name, namespace = reference.get("name"), reference.get("namespace")
    if reference.get("type") == "namespace":
        return frozenset(key for key, shape in shapes.items() if shape.namespace == name)
    flat = flat_name(str(name), namespace)
    if flat in shapes:
        return frozenset({flat})
    return frozenset(key for key, shape in shapes.items() if shape.name == name)


def _not_run(kinds: str, param: str) -> Exception:
    return invalid(
        f"tools of the type {kinds} do not run here, and the request requires one; "
        "offer functions, or remove these tools",
        param,
    )


_KINDS: Final = frozenset({"function", "custom", "namespace"})
