"""Builds chat messages from another dialect's transcript, piece by piece in order.

Consecutive pieces of one side become one message, because many chat templates refuse two messages
of one role in a row. Results go right after their calls; the user's other words and the results'
images follow, because chat completions take images from users only. Leading system texts make the
one system message. Later system texts stay in place, as the user's: chat templates accept a system
message at the head only, and moving texts there would change the prompt's head each turn.

A message depends only on the pieces before it. So a turn's messages begin with those of the
previous turn, byte for byte, and prompt caches and loop detection can reuse them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from .call import call_fields

Json = dict[str, Any]
Part = str | Json  # a piece of a user's message: text, or a part of another kind

BETWEEN: Final = "\n\n"
IMAGE_FOLLOWS: Final = "[an image: see the message after this]"
_REMINDER: Final = "<system-reminder>\n{}\n</system-reminder>"


def reminder(text: str) -> str:
    """Mark a text in the user's message as not the user's own."""
    return _REMINDER.format(text)


class Transcript:
    """Takes the pieces of a transcript in order; :meth:`messages` returns the chat messages."""

    def __init__(self) -> None:
        self._head: list[str] = []  # system texts before any other piece
        self._messages: list[Json] = []
        self._user_parts: list[Part] = []  # the user's pieces that are not in a message yet
        # The assistant's pieces that are not in a message yet.
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[Json] = []

    @property
    def has_begun(self) -> bool:
        """Whether anything but system texts has been added."""
        return bool(
            self._messages or self._user_parts or self._texts or self._thoughts or self._calls
        )

    def system(self, texts: Iterable[str]) -> None:
        if not self.has_begun:
            self._head += filter(None, texts)
        elif text := BETWEEN.join(texts):
            self.user([reminder(text)])

    def user(self, parts: Iterable[Part]) -> None:
        self._end_of_assistant()
        self._user_parts += parts

    def result(self, call_id: str, text: str, images: Iterable[Json] = ()) -> None:
        self._end_of_assistant()
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        self._user_parts += images

    def assistant(self, text: str | None = None, thought: str = "") -> None:
        """Add the assistant's text, its reasoning, or both.

        Reasoning alone makes no message: with ``text=""`` it does, with None it waits for a text or
        call to follow.
        """
        self._end_of_user()
        self._texts += [] if text is None else [text]
        self._thoughts += [thought] if thought else []

    def call(self, call_id: str, name: str, arguments: str) -> None:
        self._end_of_user()
        self._calls.append(call_fields(call_id, name, arguments))

    def messages(self) -> list[Json]:
        """Return all messages, the system message first."""
        self._end_of_assistant()
        self._end_of_user()
        if not self._head:
            return self._messages
        return [{"role": "system", "content": BETWEEN.join(self._head)}, *self._messages]

    def _end_of_user(self) -> None:
        if self._user_parts:
            self._messages.append({"role": "user", "content": joined(self._user_parts)})
            self._user_parts = []

    def _end_of_assistant(self) -> None:
        texts, thoughts, calls = self._texts, self._thoughts, self._calls
        if texts or calls:  # reasoning alone makes no message
            text = BETWEEN.join(filter(None, texts))
            message: Json = {"role": "assistant", "content": (text or None) if calls else text}
            if thoughts:
                message["reasoning_content"] = BETWEEN.join(thoughts)
            if calls:
                message["tool_calls"] = calls
            self._messages.append(message)
        self._texts, self._thoughts, self._calls = [], [], []


def joined(parts: list[Part]) -> str | list[Json]:
    """Return a user's content: if all parts are text, a string, as all chat templates accept."""
    content: list[Json] = []
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        content += _text_parts(texts)
        texts = []
        content.append(part)
    return [*content, *_text_parts(texts)] if content else BETWEEN.join(texts)


def _text_parts(texts: list[str]) -> list[Json]:
    return [{"type": "text", "text": BETWEEN.join(texts)}] if texts else []
