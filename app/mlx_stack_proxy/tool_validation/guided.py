"""Guided replies: a ``response_format`` that only allows a valid reply.

The schema allows one call of an offered tool, as ``{"name": …, "arguments": {…}}``, several in
``{"tool_calls": [ … ]}``, or an answer as ``{"answer": "…"}``. A server that obeys it makes the
model's calls valid; the reader of bare JSON turns them into real calls.

The schema consists of the tools' own, reduced to what servers' grammars support: references are
inlined, ``oneOf`` becomes ``anyOf``, and limits on length, size and spelling are dropped. The
result is checked like any other call, so that a dropped limit still counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from ..engine.request import Request
from ..wire.fields import FRAME
from ..wire.thoughts import after_thoughts
from .formats.base import json_object
from .names import nearest
from .tool_choice import ToolChoice, read_choice
from .tools import ToolSet

WORD: Final = "guided"  # in X-MLX-Stack-Repairs
ANSWER: Final = "answer"
CALLS: Final = "tool_calls"  # a key under which the reader of bare JSON finds a list
MAX_TOOLS: Final = 32
MAX_SCHEMA: Final = 24_000  # bytes of all schemas together, which a server compiles for each call
MAX_ARGUMENTS: Final = 8_000  # bytes of one tool's schema; a larger one is reduced to "an object"
_ANY: Final = {"type": ["string", "number", "boolean", "object", "array", "null"]}
_BEGUN_ANSWER: Final = re.compile(r'\s*+\{\s*+"answer"\s*+:\s*+"')

Schema = dict[str, Any]


def can_be_guided(request: Request) -> bool:
    """Whether a reply to the request may be guided: it offers tools and sets no format itself.

    A custom tool's input is not JSON, and several choices can't be read as one reply.
    """
    body = request.body
    functions = [tool.get("function") for tool in request.tools if isinstance(tool, dict)]
    custom = any(
        not isinstance(function, dict) or FRAME in json.dumps(function.get("parameters"))
        for function in functions
    )
    one = (body.get("n") or 1) == 1 and not body.get("response_format")
    return bool(request.tools) and one and not custom


def response_format(
    body: Mapping[str, Any], tools: ToolSet, meant: Iterable[str] = (), *, strict: bool = True
) -> dict[str, Any]:
    """Return the ``response_format`` of a request with these tools.

    ``meant``: names that the failed reply called; if there are too many tools, those with these or
    the most similar names are kept. ``strict``: as in OpenAI's format; OpenAI's own servers then
    refuse tools with optional parameters.
    """
    choice = read_choice(body.get("tool_choice"))
    forms = [] if choice.none else list(_calls(tools, choice, tuple(meant)))
    if forms and body.get("parallel_tool_calls") is not False:
        forms.append(_object({CALLS: {"type": "array", "items": _any_of([*forms])}}))
    if not choice.required or not forms:
        forms.append(_object({ANSWER: {"type": "string"}}))
    schema = _any_of(forms)
    return {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": strict, "schema": schema},
    }


def read_reply(text: str) -> tuple[bool, str | None]:
    """Return whether a reply obeys the schema, and the text of its answer, if it is one.

    A cut reply obeys it, too, if it began an answer.
    """
    text = after_thoughts(text).strip()
    members = json_object(text)
    if members is None:
        begun = _BEGUN_ANSWER.match(text)
        return begun is not None, _decoded(text[begun.end() :]) if begun else None
    obeyed = members.keys() in ({"name", "arguments"}, {CALLS}, {ANSWER})
    answer = members.get(ANSWER) if len(members) == 1 else None
    return obeyed, answer if isinstance(answer, str) else None


def _decoded(begun: str) -> str:
    """Decode a JSON string that was cut, without half an escape at its end."""
    for cut in range(12):  # an escaped surrogate pair has 12 characters
        try:
            text = str(json.loads(f'"{begun[: len(begun) - cut]}"', strict=False))
        except ValueError:
            continue
        if not ("\ud800" <= text[-1:] < "\udc00"):  # half a pair
            return text
    return begun


def _calls(tools: ToolSet, choice: ToolChoice, meant: Sequence[str]) -> Iterator[Schema]:
    """Yield the schema of a call for each tool, the meant ones first, within the bounds."""
    names = [name for name in tools.names if choice.allowed is None or name in choice.allowed]
    near = dict.fromkeys(name for one in meant for name in nearest(one, names))
    names = [*near, *(name for name in names if name not in near)]
    size = 0
    for number, name in enumerate(names[:MAX_TOOLS]):
        arguments = guided(tools.compiled(name).schema)
        taken = len(orjson.dumps(arguments))
        if taken > MAX_ARGUMENTS:
            arguments, taken = {"type": "object"}, 0
        size += taken + len(name)
        if number and size > MAX_SCHEMA:
            return
        yield _object({"name": {"type": "string", "enum": [name]}, "arguments": arguments})


def _object(properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _any_of(forms: list[Schema]) -> Schema:
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def guided(schema: Any) -> Schema:
    """Return the part of a cleaned schema that servers' grammars support; no valid value is lost.

    Some grammars treat an empty schema as "an object", and ignore properties next to alternatives.
    """
    schema = _merged(schema) if isinstance(schema, dict) else {}
    if "const" in schema or "enum" in schema:
        return {"enum": [schema["const"]] if "const" in schema else schema["enum"]}
    if "properties" in schema or schema.get("type") == "object":
        return _guided_object(schema)
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        return {"anyOf": [guided(alternative) for alternative in alternatives]}
    out: Schema = {"type": schema["type"]} if "type" in schema else dict(_ANY)
    if "items" in schema and "array" in out["type"]:
        out["items"] = guided(schema["items"])
    return out


def _guided_object(schema: Schema) -> Schema:
    required = [name for name in schema.get("required", ()) if isinstance(name, str)]
    parts = schema.get("properties", {})
    properties = {name: guided(parts.get(name)) for name in dict.fromkeys((*parts, *required))}
    others = schema.get("additionalProperties", not properties)
    out: Schema = {"type": "object"}
    if isinstance(others, dict) and others:
        out["additionalProperties"] = guided(others)
    elif not others:
        out["additionalProperties"] = False
    if properties or others is False:
        out["properties"] = properties
    if required:
        out["required"] = required
    return out


def _merged(schema: Schema) -> Schema:
    """Join the parts of ``allOf``; of two equal keywords the later one counts."""
    out = {keyword: value for keyword, value in schema.items() if keyword != "allOf"}
    for part in schema.get("allOf", ()):
        merged = _merged(part) if isinstance(part, dict) else {}
        joined = {
            "properties": {**out.get("properties", {}), **merged.get("properties", {})},
            "required": [*out.get("required", ()), *merged.get("required", ())],
        }
        out |= {keyword: joined.get(keyword, value) for keyword, value in merged.items()}
    return out
