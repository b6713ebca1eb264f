"""Translates OpenAI's older spelling of tools, ``functions`` and ``function_call``, both ways.

Upstream and the stages only ever see ``tools``; a client that used the older form gets its reply in
the older form. That form has one call per reply, so a reply's further calls are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ID = "call_function_{}"


def is_used(body: Mapping[str, Any]) -> bool:
    """Whether a request is written in the older form."""
    return bool(body.get("functions")) and not body.get("tools")


def to_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request with ``tools``, ``tool_choice`` and ``tool`` messages instead."""
    new = {k: v for k, v in body.items() if k not in ("functions", "function_call")}
    new["tools"] = [{"type": "function", "function": f} for f in body["functions"]]
    choice = body.get("function_call")
    if isinstance(choice, str):
        new["tool_choice"] = choice
    elif isinstance(choice, dict):
        new["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    new["messages"] = _messages_to_tools(body["messages"])
    return new


def _messages_to_tools(messages: Sequence[Any]) -> list[Any]:
    converted = []
    calls = 0
    for message in messages:
        if isinstance(message.get("function_call"), dict):
            calls += 1
            rest = {k: v for k, v in message.items() if k != "function_call"}
            call = {
                "id": _ID.format(calls),
                "type": "function",
                "function": message["function_call"],
            }
            converted.append({**rest, "tool_calls": [call]})
        elif message.get("role") == "function":
            rest = {k: v for k, v in message.items() if k != "name"}
            converted.append({**rest, "role": "tool", "tool_call_id": _ID.format(calls or 1)})
        else:
            converted.append(message)
    return converted


def to_functions(payload: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a chunk (``place`` "delta") or completion (``place`` "message") in the older form."""
    choices = [_to_function(one, place) for one in payload.get("choices") or ()]
    return {**payload, "choices": choices} if choices else payload


def _to_function(choice: dict[str, Any], place: str) -> dict[str, Any]:
    said = {key: value for key, value in choice[place].items() if key != "tool_calls"}
    for call in choice[place].get("tool_calls") or ():
        if not call.get("index"):
            function = call.get("function") or {}
            said["function_call"] = {k: v for k, v in function.items() if v is not None}
            break
    new = {**choice, place: said}
    if choice.get("finish_reason") == "tool_calls":
        new["finish_reason"] = "function_call"
    return new
