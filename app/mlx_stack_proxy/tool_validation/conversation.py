"""What was said and called before a reply, looked up only when something hangs on it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

MAX_CHARS: Final = 4_000_000  # the end of a longer conversation is looked at


class Conversation:
    """The messages before a reply, in OpenAI's form; nothing is read until it is asked.

    Give the client's messages, not a retry's: a call that was asked about would excuse the next.
    """

    __slots__ = ("_messages", "_text")

    def __init__(self, messages: Iterable[Any] = ()) -> None:
        self._messages = messages
        self._text: str | None = None

    def __call__(self, value: str) -> bool:
        """Whether `value` was said, by anybody: in any case, at the start of a word.

        The assistant's own calls don't count.
        """
        if self._text is None:
            self._text = "\n".join(texts(self._messages))[-MAX_CHARS:].casefold()
        return _stands_in(value.strip().casefold(), self._text)

    def had_empty(self, tool: str, keys: Sequence[str]) -> bool:
        """Whether an earlier call of `tool` has an empty or blank text behind these names."""
        for message in self._messages:
            for call in calls(message):
                if call.get("name") == tool and _is_blank(call.get("arguments"), keys):
                    return True
        return False


def calls(message: Any) -> Iterator[Mapping[str, Any]]:
    """The functions that a message calls: each with its name and its arguments."""
    given = message.get("tool_calls") if isinstance(message, Mapping) else None
    for call in given if isinstance(given, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield function


def _is_blank(arguments: Any, keys: Sequence[str]) -> bool:
    try:
        value = orjson.loads(arguments)
    except (orjson.JSONDecodeError, TypeError):
        return False
    for key in keys:
        value = value[0] if isinstance(value, list) and value else value
        value = value.get(key) if isinstance(value, Mapping) else None
    return isinstance(value, str) and not value.strip()


def _stands_in(value: str, text: str) -> bool:
    """Whether `value` stands in `text`: from a word's start on; "wait..." mentions no dots."""
    begin = "" if value[:1] in ("<", "[") else r"(?<![^\W_])"
    return bool(value) and re.search(begin + re.escape(value), text) is not None


def texts(messages: Iterable[Any]) -> Iterator[str]:
    """The texts of messages: what was said and what tools returned."""
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            for part in content:
                text = part.get("text") if isinstance(part, Mapping) else part
                if isinstance(text, str):
                    yield text
