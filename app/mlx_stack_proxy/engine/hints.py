"""Putting words of ours into a request (docs/loops.md).

Never between a call and its results, never as a second system message, and where a model reads
last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..settings import TierSettings

_Message = dict[str, Any]


def placement_on(tier: TierSettings | None, *, in_tool_result: bool) -> str:
    """Where a tier takes words of ours: "user" or "tool_result".

    ``in_tool_result``: it has refused them behind a tool result. None: a model that passes through.
    """
    if in_tool_result:
        return "tool_result"
    return tier.hint_placement if tier is not None else "user"


def place(
    messages: Sequence[_Message], text: str, *, role: str = "user", placement: str = "user"
) -> list[_Message]:
    """The messages with ``text`` added; the given list and its messages are not changed.

    ``role`` "user": appended to the last message where that is the user's, else a user message of
    its own, or, with ``placement`` "tool_result", into the last tool result. ``role`` "system":
    appended to the first system message, or put first as one.
    """
    if role == "system":
        for position, message in enumerate(messages):
            if message.get("role") in ("system", "developer"):
                return _replaced(messages, position, text)
        return [{"role": "system", "content": text}, *messages]
    last = messages[-1] if messages else {}
    if last.get("role") == "user":
        return _replaced(messages, len(messages) - 1, text)
    if placement == "tool_result" and last.get("role") == "tool":
        return _replaced(messages, len(messages) - 1, text)
    return [*messages, {"role": "user", "content": text}]


def _replaced(messages: Sequence[_Message], position: int, text: str) -> list[_Message]:
    message = messages[position]
    content = message.get("content")
    if isinstance(content, list):  # parts: images and all else stay
        new: Any = [*content, {"type": "text", "text": text}]
    else:
        new = f"{content}\n\n{text}" if content else text
    changed = {**message, "content": new}
    return [*messages[:position], changed, *messages[position + 1 :]]
