"""Translates OpenAI's older spelling of tools, ``functions`` and ``function_call``, both ways.

Upstream and the stages see only ``tools``; a client that used the older form gets its reply in that
form. It allows one call per reply, so a reply's further calls are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .call import as_function

_ID = "call_function_{}"


def is_used(body: Mapping[str, Any]) -> bool:
    """Whether a request uses the older form."""
    return bool(body.get("functions")) and not body.get("tools")


def to_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request with ``tools``, ``tool_choice`` and ``tool`` messages instead."""
    converted = {
        key: value for key, value in body.items() if key not in ("functions", "function_call")
    }
    converted["tools"] = list(map(as_function, body["functions"]))
    choice = body.get("function_call")
    if isinstance(choice, str):
        converted["tool_choice"] = choice
    elif isinstance(choice, dict):
        converted["tool_choice"] = as_function({"name": choice.get("name")})
    converted["messages"] = _messages_to_tools(body["messages"])
    return converted


def _messages_to_tools(messages: Sequence[Any]) -> list[Any]:
    converted = []
    calls = 0
    for message in messages:
        if isinstance(message.get("function_call"), dict):
            calls += 1
            fields = {key: value for key, value in message.items() if key != "function_call"}
            call = as_function(message["function_call"], id=_ID.format(calls))
            converted.append({**fields, "tool_calls": [call]})
        elif message.get("role") == "function":
            fields = {key: value for key, value in message.items() if key != "name"}
            converted.append({**fields, "role": "tool", "tool_call_id": _ID.format(calls or 1)})
        else:
            converted.append(message)
    return converted


def to_functions(payload: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a chunk (``place`` "delta") or completion (``place`` "message") in the older form."""
    choices = []
    for choice in payload.get("choices") or ():
        message = {key: value for key, value in choice[place].items() if key != "tool_calls"}
        calls = choice[place].get("tool_calls") or ()
        if first := next((call for call in calls if not call.get("index")), None):
            function = first.get("function") or {}
            message["function_call"] = {
                key: value for key, value in function.items() if value is not None
            }
        converted = {**choice, place: message}
        if choice.get("finish_reason") == "tool_calls":
            converted["finish_reason"] = "function_call"
        choices.append(converted)
    return {**payload, "choices": choices} if choices else payload
