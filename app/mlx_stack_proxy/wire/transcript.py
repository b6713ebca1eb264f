"""Chat messages as they grow from another dialect's transcript, piece by piece in its order.

What one side says in a row is one message, for many chat templates take no two of one role. Results
go right behind their calls: what else the user says meanwhile follows them, and so do the images
of results, which chat completions take from users alone. System texts that come first make the one
system message. Later ones stay where they are, as the user's: chat templates take them nowhere but
at the head, and a head that grows each turn is read anew each turn.

The messages depend on what came before them alone: those of a turn begin with those of the turn
before, byte for byte, so that what was read of them stays of use (prompt caches, loop detection).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

Json = dict[str, Any]
Part = str | Json  # a piece of a user's message: text, or a part of another kind

BETWEEN: Final = "\n\n"
_REMINDER: Final = "<system-reminder>\n{}\n</system-reminder>"


def reminder(text: str) -> str:
    """What isn't the user's own, said in the user's place."""
    return _REMINDER.format(text)


class Transcript:
    """Takes what is said, and gives the messages."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._messages: list[Json] = []
        self._said: list[Part] = []  # by the user, since the assistant spoke last
        self._texts: list[str] = []  # the assistant's, as are these
        self._thoughts: list[str] = []
        self._calls: list[Json] = []

    @property
    def has_begun(self) -> bool:
        """Whether anybody but the system has spoken."""
        return bool(self._messages or self._said or self._texts or self._thoughts or self._calls)

    def system(self, texts: Iterable[str]) -> None:
        if not self.has_begun:
            self._head += texts
        elif text := BETWEEN.join(texts):
            self.user([reminder(text)])

    def user(self, parts: Iterable[Part]) -> None:
        self._end_of_assistant()
        self._said += parts

    def result(self, call_id: str, text: str, images: Iterable[Json] = ()) -> None:
        self._end_of_assistant()
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        self._said += images

    def assistant(self, text: str | None = None, thought: str = "") -> None:
        """``text``: "" makes a message of a thought alone; None leaves that to what follows."""
        self._end_of_user()
        self._texts += [] if text is None else [text]
        self._thoughts += [thought] if thought else []

    def call(self, call_id: str, name: str, arguments: str) -> None:
        self._end_of_user()
        function = {"name": name, "arguments": arguments}
        self._calls.append({"id": call_id, "type": "function", "function": function})

    def messages(self) -> list[Json]:
        """All of them, the system's first."""
        self._end_of_assistant()
        self._end_of_user()
        if not self._head:
            return self._messages
        return [{"role": "system", "content": BETWEEN.join(self._head)}, *self._messages]

    def _end_of_user(self) -> None:
        if self._said:
            self._messages.append({"role": "user", "content": _joined(self._said)})
            self._said = []

    def _end_of_assistant(self) -> None:
        texts, thoughts, calls = self._texts, self._thoughts, self._calls
        if texts or calls:  # a thought alone is no message
            text = BETWEEN.join(filter(None, texts))
            message: Json = {"role": "assistant", "content": (text or None) if calls else text}
            if thoughts:
                message["reasoning_content"] = BETWEEN.join(thoughts)
            if calls:
                message["tool_calls"] = calls
            self._messages.append(message)
        self._texts, self._thoughts, self._calls = [], [], []


def _joined(parts: list[Part]) -> str | list[Json]:
    """A user's content: a string where all of it is text, which every chat template takes."""
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
