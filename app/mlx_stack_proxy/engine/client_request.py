"""Parses and checks the body of a chat completion request, and brings it into one form.

The checks cover only the fields on which we or every server would fail; unknown fields pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import invalid
from ..wire import legacy, surrogates
from ..wire.blocks import Known, messages_in
from ..wire.chunk_form import MAX_CHOICES
from .request import Request

MAX_MESSAGES = 100_000  # the longest agent runs have a few thousand
MAX_MODEL = 512  # characters of a model's name; the name goes into headers, events and the log
_CHECKED: Known[int] = Known()  # how many of a conversation's messages have passed the checks


def parse(raw: bytes) -> Request:
    """Return the request in a body. Raises :class:`ProxyError` (400): what is wrong and where."""
    return checked(read(raw), len(raw))


def checked(body: dict[str, Any], size: int, failed: frozenset[str] = frozenset()) -> Request:
    """Check a parsed body and return its request. Raises as :func:`parse`.

    ``size``: bytes of the body as it came. ``failed``: ids of calls whose results are errors.
    """
    for name, value in body.items():
        check = _CHECKS.get(name)
        if check is not None and value is not None and (problem := check(value)):
            raise invalid(f"`{name}` {problem}", name)
    _check_list(body)
    if (body.get("response_format") or {}).get("type") == "text":
        # OpenAI's own default asks for nothing; a server may lack the field, and JSON is held.
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
    for name in ("tools", "functions"):
        if (tools := body.get(name)) is not None:
            _check_tools(tools, name)
    if legacy.is_used(body):
        return replace(request, body=legacy.to_tools(body), legacy_functions=True)
    return request


def read(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in a body. Raises as :func:`parse`.

    If an agent written in JavaScript cuts a tool's output within an emoji, the text ends in half a
    character (a lone surrogate). LiteLLM would refuse this turn and all later ones, so the half
    character becomes U+FFFD.
    """
    if not raw or raw.isspace():
        raise invalid("the request body is empty; send a JSON object")
    try:
        body = surrogates.read(raw)
    except ValueError as error:
        raise invalid(f"the request body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise invalid("the request body must be a JSON object")
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
    """Check the messages behind ``count`` others; return how many are checked now."""
    for position, message in enumerate(messages, count):
        if (problem := _problem(message)) is not None:
            key, complaint = problem
            path = f"messages[{position}]{key}"
            raise invalid(f"`{path}` {complaint}", path)
    return count + len(messages)


def _problem(message: Any) -> tuple[str, str] | None:
    """Return where in a message something is wrong, and what; None: nothing is."""
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


def _check_tools(tools: Any, name: str) -> None:
    if not isinstance(tools, list):
        raise invalid(f"`{name}` must be an array", name)
    for position, tool in enumerate(tools):
        path = f"{name}[{position}]"
        if not isinstance(tool, dict):
            raise invalid(f"`{path}` must be an object", path)
        function = tool if name == "functions" else tool.get("function")
        if name == "tools" and tool.get("type", "function") != "function":
            continue  # tools of other kinds go to LiteLLM unchecked
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            name_path = f"{path}.name" if name == "functions" else f"{path}.function.name"
            raise invalid(f"`{name_path}` must be a string", name_path)


def _of(expected: str, *types: type) -> Callable[[Any], str]:
    """Return a check for values of these types; a bool doesn't count as a number."""

    def check(value: Any) -> str:
        is_valid = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        return "" if is_valid else f"must be {expected}"

    return check


_string = _of("a string", str)
_object = _of("an object", dict)
_boolean = _of("true or false", bool)
_number = _of("a number", int, float)
_string_or_object = _of("a string or an object", str, dict)


def _name(value: Any) -> str:
    if isinstance(value, str) and len(value) > MAX_MODEL:
        return f"has more than {MAX_MODEL} characters"
    return _string(value)


def _positive(value: Any) -> str:
    is_valid = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return "" if is_valid else "must be a whole number above 0"


def _choices(value: Any) -> str:
    is_valid = not _positive(value) and value <= MAX_CHOICES
    return "" if is_valid else f"must be a whole number from 1 to {MAX_CHOICES}"


def _stop(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    is_valid = all(isinstance(stop, str) for stop in values)
    return "" if is_valid else "must be a string or an array of strings"


# Each check returns what is wrong with a value, or "". A null is not checked: it means "not given".
_CHECKS: dict[str, Callable[[Any], str]] = {
    "model": _name,
    "stream": _boolean,
    "stream_options": _object,
    "n": _choices,
    "max_tokens": _positive,
    "max_completion_tokens": _positive,
    "temperature": _number,
    "top_p": _number,
    "presence_penalty": _number,
    "frequency_penalty": _number,
    "tool_choice": _string_or_object,
    "function_call": _string_or_object,
    "parallel_tool_calls": _boolean,
    "response_format": _object,
    "web_search_options": _object,
    "stop": _stop,
}
