"""Messages and calls of a chat completion, as plain JSON."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def says(role: str, content: Any, **more: Any) -> Json:
    return {"role": role, "content": content, **more}


def tool_call(identifier: str, name: str = "f", arguments: str = "{}") -> Json:
    function = {"name": name, "arguments": arguments}
    return {"id": identifier, "type": "function", "function": function}


def called(*calls: Json, content: str | None = None, **more: Any) -> Json:
    """An assistant's message with these calls."""
    return says("assistant", content, tool_calls=list(calls), **more)


def gave(identifier: str, content: Any) -> Json:
    """What a call brought."""
    return says("tool", content, tool_call_id=identifier)


def reminder(text: str) -> str:
    """What stands in a user's message for a later one of the system's."""
    return f"<system-reminder>\n{text}\n</system-reminder>"


def call_piece(name: str, arguments: str = "{}", id: str = "call_1", index: int = 0) -> Json:
    """A stream's delta with a call, or the beginning of one."""
    return {"tool_calls": [{"index": index, **tool_call(id, name, arguments)}]}
