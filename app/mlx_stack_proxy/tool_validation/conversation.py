"""Searches the conversation before a reply for a value; joins its text when first needed.

A reply may cause a few searches, each of which takes time linear in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, TypeVar, cast

import orjson

from ..wire.call import functions_in

MAX_CHARS: Final = 1_000_000  # of a longer conversation, only the last characters are searched
MAX_QUESTIONS: Final = 8  # for one reply; further values count as found
MAX_PLACES: Final = 10_000  # examined for one value; a value with more counts as found
MAX_CALLED: Final = 200_000  # characters of earlier arguments that are searched, from the newest on

T = TypeVar("T")


class Conversation:
    """The client's messages before a reply, in OpenAI's form, as the doubts search them.

    Pass the client's own messages, not a retry's: those quote the doubted call, whose value would
    then count as found.
    """

    def __init__(self, messages: Sequence[Any] = (), tools: Any = None) -> None:
        self._messages = messages
        self.tools = tools  # the request's
        self._answers: dict[tuple[str, ...], Any] = {}  # by question
        self._called: dict[str, list[Any]] = {}  # by tool: the arguments of its newest calls

    @cached_property
    def given(self) -> str:
        """The text of the users, the tools and the system."""
        return self._joined(own=False)

    @cached_property
    def own(self) -> str:
        """The model's text, and the arguments of its calls."""
        return self._joined(own=True)

    def _joined(self, *, own: bool) -> str:
        messages = (one for one in self._messages if isinstance(one, Mapping))
        chosen = (one for one in messages if (one.get("role") == "assistant") is own)
        return "\n".join(text for one in chosen for text in _texts_of(one))[-MAX_CHARS:]

    @cached_property
    def _lower(self) -> str:
        return self.given.lower()  # much cheaper than `casefold`

    def __call__(self, value: str) -> bool:
        """Whether ``value`` occurs at the start of a word, regardless of case."""
        lower = value.strip().lower()

        def at_start(start: int, end: int) -> bool:
            # "wait..." does not contain "..."
            return lower[0] in "<[" or not self._lower[start - 1 : start].isalnum()

        def find() -> bool:
            return occurs(lower, self._lower, at_start)

        return bool(lower) and self.answer((lower,), find, otherwise=True)

    def answer(self, question: tuple[str, ...], find: Callable[[], T], *, otherwise: T) -> T:
        """Return the cached answer; after too many, ``otherwise``, which doubts nothing."""
        if question not in self._answers:
            if len(self._answers) >= MAX_QUESTIONS:
                return otherwise
            self._answers[question] = find()
        return cast(T, self._answers[question])

    def had_empty(self, tool: str, keys: Sequence[str]) -> bool:
        """Whether an earlier call of ``tool`` has a blank text or an empty list at ``keys``."""
        if tool not in self._called:
            self._called[tool] = list(self._calls_of(tool))
        calls = self._called[tool]
        return self.answer(
            (tool, *keys),
            lambda: any(is_blank(_value_at(one, keys)) for one in calls),
            otherwise=True,
        )

    def _calls_of(self, tool: str) -> Iterator[Any]:
        left = MAX_CALLED
        for call in (one for message in reversed(self._messages) for one in functions_in(message)):
            arguments = call.get("arguments")
            if call.get("name") == tool and isinstance(arguments, str):
                left -= len(arguments)
                if left < 0:
                    return
                with suppress(orjson.JSONDecodeError):
                    yield orjson.loads(arguments)


def is_blank(value: Any) -> bool:
    """Whether a value is blank text or an empty list."""
    return not value.strip() if isinstance(value, str) else value == []


def _value_at(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = value[0] if isinstance(value, list) and value else value
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def occurs(value: str, text: str, at: Callable[[int, int], bool]) -> bool:
    """Whether ``value`` occurs in ``text`` at a place (start, end) that ``at`` accepts.

    ``str.find`` is a hundred times as fast as a regular expression with lookbehind.
    """
    start = text.find(value)
    for _ in range(MAX_PLACES):
        if start < 0 or at(start, start + len(value)):
            return start >= 0
        start = text.find(value, start + 1)
    return True


def _texts_of(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a message's content, and the arguments of its calls."""
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield text
    for call in functions_in(message):
        if isinstance(call.get("arguments"), str):
            yield call["arguments"]
