"""Look up what was said and called before a reply; the text is joined at the first question."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

MAX_CHARS: Final = 4_000_000  # of a longer conversation, only the last characters are searched


class Conversation:
    """The client's messages before a reply, in OpenAI's form; the doubts ask it what was said.

    Pass the client's own messages, not a retry's: those quote the doubted call, and its value
    would then count as said.
    """

    __slots__ = ("_messages", "_text")

    def __init__(self, messages: Iterable[Any] = ()) -> None:
        self._messages = messages
        self._text: str | None = None

    def __call__(self, value: str) -> bool:
        """Whether any message says ``value``, regardless of case, from the start of a word on.

        The arguments of the assistant's calls don't count.
        """
        if self._text is None:
            self._text = "\n".join(texts(self._messages))[-MAX_CHARS:].casefold()
        return _stands_in(value.strip().casefold(), self._text)

    def had_empty(self, tool: str, keys: Sequence[str]) -> bool:
        """Whether an earlier call of ``tool`` has a blank text at the path ``keys``."""
        for message in self._messages:
            for call in calls(message):
                if call.get("name") == tool and _is_blank(call.get("arguments"), keys):
                    return True
        return False


def calls(message: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the ``function`` object (``name``, ``arguments``) of each tool call in a message."""
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
    """Whether ``text`` holds ``value`` from a word's start on: "wait..." does not hold "..."."""
    begin = "" if value[:1] in ("<", "[") else r"(?<![^\W_])"
    return bool(value) and re.search(begin + re.escape(value), text) is not None


def texts(messages: Iterable[Any]) -> Iterator[str]:
    """Yield the text contents of messages, tool results among them."""
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            for part in content:
                text = part.get("text") if isinstance(part, Mapping) else part
                if isinstance(text, str):
                    yield text
