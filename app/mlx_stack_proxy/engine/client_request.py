"""Parses, checks and normalises the body of a chat completion request.

Only fields that would make us or every server fail are checked; unknown fields pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ..errors import invalid
from ..wire import json_text, legacy
from ..wire.blocks import PrefixCache, messages_in
from ..wire.chunks import MAX_CHOICES
from ..wire.fields import (
    BOOLEAN,
    NUMBER,
    OBJECT,
    STRING,
    Check,
    Problem,
    check_depth,
    each,
    members,
    require,
    string_or,
)
from .request import Request

MAX_MESSAGES = 100_000  # the longest agent runs have a few thousand
MAX_MODEL = 512  # characters of a model's name, which goes into headers, events and the log
_CHECKED: PrefixCache[int] = PrefixCache()  # how many of a conversation's messages have passed


def parse(raw: bytes) -> Request:
    """Return the request in a body. Raises :class:`ProxyError` (400) for a problem."""
    return checked(read(raw), len(raw))


def checked(body: dict[str, Any], size: int, failed: frozenset[str] = frozenset()) -> Request:
    """Check a parsed body and return its request. Raises like :func:`parse`.

    ``size``: bytes of the original body. ``failed``: ids of calls whose results are errors.
    """
    require(body, _CHECKS)
    _check_list(body)
    if (body.get("response_format") or {}).get("type") == "text":
        # OpenAI's default format has no effect; a server may not know the field, and JSON is held.
        body = {key: value for key, value in body.items() if key != "response_format"}
    options = body.get("stream_options") or {}
    request = Request(
        body=body,
        model=body.get("model") or "",
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        size=size,
        failed=failed,
    )
    _CHECKED.read(request.blocks, _and_checked(0, request.blocks.head), _and_checked)
    if legacy.is_used(body):
        return replace(request, body=legacy.to_tools(body), legacy_functions=True)
    return request


def read(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in a body. Raises like :func:`parse`.

    An agent in JavaScript that cuts a tool's output within an emoji sends a lone surrogate.
    LiteLLM would refuse this turn and all later ones, so the surrogate becomes U+FFFD.
    """
    if not raw or raw.isspace():
        raise invalid("the request body is empty; send a JSON object")
    try:
        body, _ = json_text.decode(raw)
    except ValueError as error:
        raise invalid(f"the request body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise invalid("the request body must be a JSON object")
    check_depth(body, raw)
    return body


def _check_list(body: Mapping[str, Any]) -> None:
    if body.get("messages") is None:
        raise invalid("`messages` is missing", "messages")
    messages = messages_in(body)
    if messages is None:
        raise invalid("`messages` must be an array of message objects", "messages")
    if not messages:
        raise invalid("`messages` is empty; send at least one message", "messages")
    if len(messages) > MAX_MESSAGES:
        raise invalid(f"`messages` has more than {MAX_MESSAGES:,} messages", "messages")


def _and_checked(count: int, messages: Sequence[Any]) -> int:
    """Check the messages after the first ``count``; return how many are checked now."""
    for position, message in enumerate(messages, count):
        if (problem := _problem(message)) is not None:
            key, complaint = problem
            path = f"messages[{position}]{key}"
            raise invalid(f"`{path}` {complaint}", path)
    return count + len(messages)


def _problem(message: Any) -> tuple[str, str] | None:
    """Return where in a message a problem is, and what; None: there is none."""
    if not isinstance(message, dict):
        return "", "must be an object"
    role = message.get("role")
    if not isinstance(role, str) or not role:
        return ".role", "must be a string such as `user`"
    content = message.get("content")
    if content is not None and not isinstance(content, (str, list)):
        return ".content", "must be a string, an array of parts or null"
    calls = message.get("tool_calls")
    if calls is None or (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        return None
    return ".tool_calls", "must be an array of objects"


def _tool(tool: Any) -> Problem:
    problem = _ANY_TOOL(tool)
    if problem is not None or tool.get("type") not in (None, "function"):
        return problem  # tools of other types go to LiteLLM
    problem = _FUNCTION(tool.get("function") or {})
    return problem and (f".function{problem[0]}", problem[1])


_FUNCTION: Final = members(("name",), name=STRING, description=STRING)
_ANY_TOOL: Final = members(type=STRING)
_NAMED: Final = members(name=STRING)
_REFERENCE: Final[Mapping[str, Check]] = {
    "type": STRING,
    "name": STRING,
    "function": _NAMED,
    "custom": _NAMED,
}
_ALLOWED: Final[Mapping[str, Check]] = {"mode": STRING, "tools": each(members(**_REFERENCE))}
# One tool in either of OpenAI's forms or in Anthropic's, or a list of allowed tools.
_CHOICE: Final = members(**_REFERENCE, **_ALLOWED, allowed_tools=members(**_ALLOWED))


def _name(value: Any) -> Problem:
    if isinstance(value, str) and len(value) > MAX_MODEL:
        return "", f"has more than {MAX_MODEL} characters"
    return STRING(value)


def _positive(value: Any) -> Problem:
    return None if type(value) is int and value > 0 else ("", "must be a whole number above 0")


def _choices(value: Any) -> Problem:
    is_valid = not _positive(value) and value <= MAX_CHOICES
    return None if is_valid else ("", f"must be a whole number from 1 to {MAX_CHOICES}")


def _stop(value: Any) -> Problem:
    values = value if isinstance(value, list) else [value]
    is_valid = all(isinstance(stop, str) for stop in values)
    return None if is_valid else ("", "must be a string or an array of strings")


_CHECKS: Final[Mapping[str, Check]] = {
    "model": _name,
    "stream": BOOLEAN,
    "stream_options": OBJECT,
    "n": _choices,
    "max_tokens": _positive,
    "max_completion_tokens": _positive,
    "temperature": NUMBER,
    "top_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "tools": each(_tool),
    "functions": each(_FUNCTION),
    "tool_choice": string_or(_CHOICE),
    "function_call": string_or(_NAMED),
    "parallel_tool_calls": BOOLEAN,
    "response_format": OBJECT,
    "web_search_options": OBJECT,
    "stop": _stop,
}
