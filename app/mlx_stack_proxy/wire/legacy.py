"""``functions`` and ``function_call``, OpenAI's older spelling of tools, turned both ways.

Upstream and our stages only ever see ``tools``; a client that wrote the older form gets it back.
The older form knows one call a reply, so further ones are left out on the way back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ID = "call_function_{}"


def is_used(body: Mapping[str, Any]) -> bool:
    """Whether a request is written in the older form."""
    return bool(body.get("functions")) and not body.get("tools")


def to_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same request with ``tools``, ``tool_choice`` and ``tool`` messages."""
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


def to_functions(payload: Mapping[str, Any], place: str) -> dict[str, Any]:
    """A chunk (``place`` "delta") or a completion (``place`` "message") in the older form."""
    choices = payload.get("choices")
    if not isinstance(choices, list):
        return dict(payload)
    return {**payload, "choices": [_choice_to_functions(choice, place) for choice in choices]}


def has_tools(payload: Mapping[str, Any], place: str) -> bool:
    """Whether :func:`to_functions` would change anything."""
    choices = payload.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            holder = choice.get(place)
            calls = isinstance(holder, dict) and "tool_calls" in holder
            if calls or choice.get("finish_reason") == "tool_calls":
                return True
    return False


def _choice_to_functions(choice: Any, place: str) -> Any:
    if not isinstance(choice, dict):
        return choice
    new = dict(choice)
    if new.get("finish_reason") == "tool_calls":
        new["finish_reason"] = "function_call"
    holder = new.get(place)
    if isinstance(holder, dict) and "tool_calls" in holder:
        calls = holder["tool_calls"]
        holder = {k: v for k, v in holder.items() if k != "tool_calls"}
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and not call.get("index"):
                function = call.get("function")
                if isinstance(function, dict):
                    holder["function_call"] = {k: v for k, v in function.items() if v is not None}
                break
        new[place] = holder
    return new
