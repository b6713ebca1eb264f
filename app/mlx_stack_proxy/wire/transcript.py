"""Builds chat messages from another dialect's transcript, piece by piece in the transcript's order.

Consecutive pieces of one side become one message, because many chat templates refuse two messages
of one role in a row. Results go right after their calls; the user's other words and the results'
images follow, because chat completions take images from users alone. System texts at the head make
the one system message. Later system texts stay in their place, as the user's: chat templates accept
a system message at the head only, and moving them there would change the prompt's head each turn.

A message depends only on pieces before it. So the messages of a turn begin with those of the turn
before, byte for byte, and prompt caches and loop detection can reuse them.
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
    """Mark a text in the user's message that is not the user's own."""
    return _REMINDER.format(text)


class Transcript:
    """Takes the pieces of a transcript in order; :meth:`messages` returns the chat messages."""

    def __init__(self) -> None:
        self._head: list[str] = []  # system texts before any other piece
        self._messages: list[Json] = []
        self._user_parts: list[Part] = []  # the user's pieces that are in no message yet
        # The assistant's pieces that are in no message yet.
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[Json] = []

    @property
    def has_begun(self) -> bool:
        """Whether anybody but the system has spoken."""
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
        """Take the assistant's text, its thought, or both.

        A thought makes no message by itself: ``text=""`` makes one of it, with None the thought
        waits for a text or call to follow.
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
        if texts or calls:  # a thought alone makes no message
            text = BETWEEN.join(filter(None, texts))
            message: Json = {"role": "assistant", "content": (text or None) if calls else text}
            if thoughts:
                message["reasoning_content"] = BETWEEN.join(thoughts)
            if calls:
                message["tool_calls"] = calls
            self._messages.append(message)
        self._texts, self._thoughts, self._calls = [], [], []


def joined(parts: list[Part]) -> str | list[Json]:
    """Return a user's content: a string, as every chat template takes it, if all parts are text."""
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
