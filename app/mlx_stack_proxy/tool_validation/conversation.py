"""Look up what was said and called before a reply; the text is joined at the first question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import orjson

MAX_CHARS: Final = 4_000_000  # of a longer conversation, only the last characters are searched


class Conversation:
    """The client's messages before a reply, in OpenAI's form; the doubts look values up in them.

    Pass the client's own messages, not a retry's: those quote the doubted call, and its value
    would then count as said.
    """

    def __init__(self, messages: Sequence[Any] = ()) -> None:
        self._messages = messages

    @cached_property
    def given(self) -> str:
        """What the users, the tools and the system said."""
        return "\n".join(text for is_own, text in self._texts() if not is_own)[-MAX_CHARS:]

    @cached_property
    def own(self) -> str:
        """What the model said, and the arguments of its calls."""
        return "\n".join(text for is_own, text in self._texts() if is_own)[-MAX_CHARS:]

    @cached_property
    def _folded(self) -> str:
        return self.given.casefold()

    def __call__(self, value: str) -> bool:
        """Whether somebody gave ``value``, regardless of case, from the start of a word on."""
        return _stands_in(value.strip().casefold(), self._folded)

    def _texts(self) -> Iterator[tuple[bool, str]]:
        """Yield all texts and arguments: (is the model's own, text)."""
        for message in self._messages:
            if isinstance(message, Mapping):
                is_own = message.get("role") == "assistant"
                yield from ((is_own, text) for text in _texts_of(message.get("content")))
                arguments = (call.get("arguments") for call in calls(message))
                yield from ((is_own, text) for text in arguments if isinstance(text, str))

    def had_empty(self, tool: str, keys: Sequence[str]) -> bool:
        """Whether an earlier call of ``tool`` has a blank text or list at the path ``keys``."""
        for message in self._messages:
            for call in calls(message):
                if call.get("name") == tool and is_blank(_value_at(call.get("arguments"), keys)):
                    return True
        return False


def calls(message: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the ``function`` object (``name``, ``arguments``) of each tool call in a message."""
    tool_calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    for call in tool_calls if isinstance(tool_calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield function


def is_blank(value: Any) -> bool:
    """Whether a value is a text of blanks, or an empty list."""
    return not value.strip() if isinstance(value, str) else value == []


def _value_at(arguments: Any, keys: Sequence[str]) -> Any:
    try:
        value: Any = orjson.loads(arguments)
    except (orjson.JSONDecodeError, TypeError):
        return None
    for key in keys:
        value = value[0] if isinstance(value, list) and value else value
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _stands_in(value: str, text: str) -> bool:
    """Whether ``text`` holds ``value`` from a word's start on: "wait..." does not hold "..."."""
    boundary = "" if value[:1] in ("<", "[") else r"(?<![^\W_])"
    return bool(value) and re.search(boundary + re.escape(value), text) is not None


def _texts_of(content: Any) -> Iterator[str]:
    """Yield the texts of a message's content."""
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield text
