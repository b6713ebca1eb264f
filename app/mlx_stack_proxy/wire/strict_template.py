"""Rewrites chat messages for chat templates that accept system messages and images in few places.

Many templates accept one system message, at the head, and images from users only. A later system
message becomes the user's text at its place; an image in a tool's result moves to the user's
message after the results, as :mod:`.transcript` does for the other dialects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .transcript import BETWEEN, IMAGE_FOLLOWS, Json, Part, joined, reminder

_SYSTEM: Final = ("system", "developer")
_IMAGES: Final = ("image_url", "input_image", "image")


def is_image(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in _IMAGES


def needs_rewriting(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a system message or an image is at a place where a strict template refuses it."""
    begun = False
    for place, message in enumerate(messages):
        role = message.get("role")
        if role in _SYSTEM and (begun or place):
            return True
        if role == "tool" and any(map(is_image, _parts(message))):
            return True
        begun = begun or role not in _SYSTEM
    return False


def rewritten(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return the messages as a strict template accepts them; the input stays unchanged."""
    out: list[Json] = []
    head: list[Part] = []
    waiting: list[Part] = []  # the user's parts that are not in a message yet
    for message in messages:
        role = message.get("role")
        if role in _SYSTEM:
            if out:
                texts = [part for part in _parts(message) if isinstance(part, str)]
                waiting.append(reminder(BETWEEN.join(texts)))
            else:
                head += _parts(message)
        elif role == "tool":
            out.append(dict(message))
            parts = _parts(message)
            if images := [part for part in parts if is_image(part)]:
                waiting += images
                kept = [part for part in parts if not is_image(part)]
                out[-1]["content"] = joined([*kept, IMAGE_FOLLOWS])
        elif role == "user":
            _add_user(out, [*waiting, *_parts(message)], message)
            waiting = []
        else:
            _add_user(out, waiting, {})
            waiting = []
            out.append(dict(message))
    _add_user(out, waiting, {})
    return [{"role": "system", "content": joined(head)}, *out] if head else out


def _add_user(out: list[Json], parts: list[Part], message: Mapping[str, Any]) -> None:
    """Append the user's parts, to the last message if that is the user's and no new one began."""
    if not message and parts and out and out[-1].get("role") == "user":
        message = out.pop()
        parts = [*_parts(message), *parts]
    if parts or message:
        out.append({**message, "role": "user", "content": joined(parts)})


def _parts(message: Mapping[str, Any]) -> list[Part]:
    """Return a message's content as parts, text parts as strings."""
    content = message.get("content")
    if not isinstance(content, list):
        return [content] if isinstance(content, str) and content else []
    parts: list[Part] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) and len(part) == 2 else None
        parts.append(text if isinstance(text, str) else part)
    return parts
