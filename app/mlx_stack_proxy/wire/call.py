"""A tool call as OpenAI has it, in a request, a chunk or a completion: written here alone."""

from __future__ import annotations

from typing import Any


def call_fields(id: str | None, name: str, arguments: str) -> dict[str, Any]:
    """Return a call as an object. ``id`` None: the call has none."""
    function = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return function if id is None else {"id": id, **function}
