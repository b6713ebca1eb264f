"""Puts our own words, such as a hint, into a request's messages (docs/loops.md).

Our words go to the end of the messages, which the model reads last; never between a call and its
results, and never into a second system message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..settings import TierSettings

_Message = dict[str, Any]


def placement_on(tier: TierSettings | None, *, in_tool_result: bool) -> str:
    """Return where a tier takes our words: "user" or "tool_result".

    ``tier``: None for a model that passes through. ``in_tool_result``: the tier has refused a user
    message after a tool result.
    """
    if in_tool_result:
        return "tool_result"
    return tier.hint_placement if tier is not None else "user"


def place(
    messages: Sequence[_Message], text: str, *, role: str = "user", placement: str = "user"
) -> list[_Message]:
    """Return a new list of messages with ``text`` added; the given messages stay unchanged.

    With ``role`` "user", a user message at the end gets the text appended; so does a tool result at
    the end if ``placement`` is "tool_result"; else the text becomes a new user message. With
    ``role`` "system", the first system message gets it, or a new one is put first.
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
    if isinstance(content, list):  # content parts; images and others stay
        new: Any = [*content, {"type": "text", "text": text}]
    else:
        new = f"{content}\n\n{text}" if content else text
    changed = {**message, "content": new}
    return [*messages[:position], changed, *messages[position + 1 :]]
