"""Whether a value stands in the conversation, looked up only when something hangs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

MAX_CHARS: Final = 4_000_000  # the end of a longer conversation is looked at
# What may stand around a run of dots that is a value: "wait..." mentions none.
_APART: Final = frozenset(("", " ", "\n", "\t", '"', "'", "`"))


def conversation_lookup(messages: Iterable[Any]) -> Callable[[str], bool]:
    """A lookup over the texts of `messages`, in OpenAI's form; nothing is read until it is asked.

    The assistant's own calls don't count: an earlier bad call would excuse the next. Give the
    client's messages, not a retry's. Letters match in any case, at the start of a word.
    """
    text: list[str] = []

    def stands(value: str) -> bool:
        if not text:
            joined = "\n".join(texts(messages))
            text.append(joined[-MAX_CHARS:].casefold())
        return _stands_in(value.strip().casefold(), text[0])

    return stands


def _stands_in(value: str, text: str) -> bool:
    """Whether `value` stands in `text`: words from a word's start on, dots between spaces."""
    dots = not value.strip(".…")
    at = text.find(value) if value else -1
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(value) : at + len(value) + 1]
        if dots:
            if _APART.issuperset((before, after)):
                return True
        elif not (value[0].isalnum() and before.isalnum()):
            return True
        at = text.find(value, at + 1)
    return False


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
