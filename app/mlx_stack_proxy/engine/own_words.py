"""Adds our own words, such as a hint, to a request, and detects replies that only repeat them.

Our words go to the end of the messages, which the model reads last; never between a call and its
results, and never into a second system message (docs/loops.md). Small models repeat hints as their
answer: a reply counts as our words if it consists of at least ``LEAST`` consecutive ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..settings import TierSettings
from ..wire.delta import text_of
from ..wire.reply import Reply
from ..wire.thoughts import after_thoughts
from .gate import Gate

LEAST: Final = 4  # words; a shorter reply may be an answer in the same words by chance
MOST: Final = 8_000  # characters held; only a tool's schema makes our words longer
_WORD: Final = re.compile(r"\w+")
_TAG: Final = re.compile(r"<[^<>\s]{1,40}(?:>|\Z)")  # at the end, an incomplete tag as well
_Message = dict[str, Any]


def placement_on(tier: TierSettings | None, *, in_tool_result: bool) -> str:
    """Return where a tier accepts our words: "user" or "tool_result".

    ``tier``: None for a model that passes through. ``in_tool_result``: the tier has refused a user
    message after a tool result.
    """
    if in_tool_result:
        return "tool_result"
    return tier.hint_placement if tier is not None else "user"


def place(
    messages: Sequence[_Message], text: str, *, role: str = "user", placement: str = "user"
) -> list[_Message]:
    """Return a new list of messages with ``text`` added; the input stays unchanged.

    With ``role`` "user", the text is appended to a final user message, or to a final tool result if
    ``placement`` is "tool_result"; else it becomes a new user message. With ``role`` "system", it
    is appended to the first system message, or becomes a new one at the head.
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
    if isinstance(content, list):  # a list of parts; images and others stay
        new: Any = [*content, {"type": "text", "text": text}]
    else:
        new = f"{content}\n\n{text}" if content else text
    changed = {**message, "content": new}
    return [*messages[:position], changed, *messages[position + 1 :]]


def added(sent: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]]) -> str:
    """Return our words at the end of the sent messages; "" if the client's own are there."""
    last = text_of(sent[-1].get("content")) if sent else ""
    clients = text_of(asked[-1].get("content")) if asked else ""
    if len(sent) > len(asked) or not clients:
        return "" if last == clients else last
    return last.removeprefix(clients) if last.startswith(clients) else ""


def stand_after_result(
    sent: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether a user message of ours follows a tool's result.

    False if the client has a user message there, to which ours was appended.
    """
    if [message.get("role") for message in sent[-2:]] != ["tool", "user"]:
        return False
    return not any(sent[-2] is original for original in asked[-2:-1])


def hold_back(
    gate: Gate, sent: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]]
) -> str:
    """Make the gate hold text that may be our words; return these words."""
    words = added(sent, asked)
    if words:
        gate.text_holds.insert(0, OwnWordsHold(words))
    return words


def are_all(reply: Reply, words: str) -> bool:
    """Whether a reply consists of at least ``LEAST`` consecutive words of ours."""
    if not words or len(reply.choices) != 1:
        return False
    (choice,) = reply.choices.values()
    if choice.tool_calls or choice.refusal or choice.has_other or choice.finish_reason != "stop":
        return False
    found = _words(after_thoughts(choice.text))
    return len(found) >= LEAST and f" {' '.join(found)} " in _spaced(words)


class OwnWordsHold:
    """Holds text while it may become a part of our words."""

    __slots__ = ("_held", "_words")

    def __init__(self, words: str) -> None:
        self._words = _spaced(words)
        self._held: str | None = ""  # None: the text can no longer become ours

    def feed(self, delta: str) -> str:
        """Add the next delta; return the text that may flow now."""
        if self._held is None:
            return delta
        self._held += delta
        if len(self._held) <= MOST and f" {' '.join(_words(self._held))}" in self._words:
            return ""
        text, self._held = self._held, None
        return text


def _words(text: str) -> list[str]:
    return _WORD.findall(_TAG.sub(" ", text).casefold())


def _spaced(words: str) -> str:
    return f" {' '.join(_words(words))} "
