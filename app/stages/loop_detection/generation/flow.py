"""The text, or the reasoning, of one choice while it comes: what all watchers of it share.

Nothing is looked at for each chunk: pieces wait until the text has reached the next length at which
something could be decided, at most 64 characters on, or 128 at its beginning.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ....core.prompt_size import BYTES_PER_OUTPUT_TOKEN
from ....frozen import frozen
from ....settings import GenerationSettings
from ....tool_calls.formats.table import REASONING
from .periodic import BLOCK, LONG_PERIOD, PeriodicText, Repetition, limit_of
from .restated import Restated
from .whitespace import WhitespaceRun
from .written_calls import WrittenCalls

_OPENERS = tuple(REASONING)
# What may still become one; the whole word, too, whose text comes with what follows it.
_BEGINNINGS = frozenset(word[:size] for word in _OPENERS for size in range(len(word) + 1))


@frozen
class EndlessWhitespace:
    """``text[start:end]`` is whitespace, one character more than is allowed."""

    start: int
    end: int


@frozen
class NothingNew:
    """Each sentence of ``text[start:end]`` had been said before, often enough."""

    start: int
    end: int


@frozen
class TooMuchReasoning:
    """The reasoning has gone on for more than its tokens, as estimated."""

    tokens: int


@frozen
class RepeatedCall:
    """A call written as text is one too many."""

    tool: str


GoneRound = Repetition | EndlessWhitespace | NothingNew
Found = GoneRound | TooMuchReasoning | RepeatedCall


class Flow:
    """One text. ``rules``: None where generation isn't watched. ``calls``: for text, not reasoning.

    A new piece goes to ``waiting``, its size to ``length``; then, from the length ``due`` on, it is
    to be looked at. ``size``: its UTF-8 bytes, of all but the characters that still wait.
    """

    __slots__ = (
        "_calls",
        "_early",
        "_reasoning",
        "_rules",
        "_watches",
        "due",
        "length",
        "size",
        "waiting",
    )

    def __init__(
        self,
        rules: GenerationSettings | None,
        *,
        calls: WrittenCalls | None = None,
        reasoning: bool = False,
    ) -> None:
        self._rules = rules
        self._reasoning = reasoning
        # Made once there can be anything to find, which many a reply is too short for.
        self._early = ""  # what was looked at before, for calls alone
        self._watches: _Watches | None = None
        self._calls = calls
        self.waiting: list[str] = []
        self.due = _first_due(rules)
        self.length = 0
        self.size = 0

    def look(self) -> Found | None:
        """The first thing found in what waited. Once something is, there is no more to look at."""
        piece = "".join(self.waiting)
        self.waiting.clear()
        size = len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogatepass"))
        self.size += size
        found = self._in_generation(piece)
        if self._calls is not None:
            # Calls that repeat are a periodic text too, but what came before can be delivered.
            tool = self._calls.feed(piece, now=found is not None)
            found = RepeatedCall(tool) if tool is not None else found
        self.due = self.length + BLOCK
        if self._watches is not None:
            self.due = min(self._watches.periodic.due, self._watches.white.due)
        elif self._rules is not None:
            self.due = min(self.due, _first_due(self._rules))
        return found

    def _in_generation(self, piece: str) -> Found | None:
        """What is complete first, whichever it is: so pieces make no difference."""
        rules = self._rules
        if rules is None:
            return None
        watches = self._watches
        if watches is None:
            self._early += piece
            if self.length < _first_due(rules):
                return None
            piece, self._early = self._early, ""
            watches = self._watches = _Watches(
                PeriodicText(rules),
                WhitespaceRun(rules.max_trailing_whitespace),
                Restated(rules),
                _Thinking(rules, self._reasoning),
            )
        found: list[tuple[int, Found]] = []
        if (blank := watches.white.feed(piece)) is not None:
            found.append((blank[1], EndlessWhitespace(*blank)))
        if (repetition := watches.periodic.feed(piece)) is not None:
            found.append((repetition.end, repetition))
        if (stretch := watches.restated.feed(piece)) is not None:
            found.append((stretch[1], NothingNew(*stretch)))
        if (end := watches.thinking.feed(piece)) is not None:
            found.append((end, TooMuchReasoning(watches.thinking.tokens)))
        return min(found, key=lambda one: one[0])[1] if found else None


@lru_cache(maxsize=16)
def _first_due(rules: GenerationSettings | None) -> int:
    """The length of text up to which nothing can be found but calls; a block at least.

    What is periodic for long enough has the shortest limit at least; a phrase said often, 5 times
    with 8 characters between, is longer than a block (``clusters.py``). No character has more than
    4 bytes. Calls that repeat in a shorter text are taken out of it at its end.
    """
    if rules is None:
        return BLOCK
    thought = rules.max_reasoning_tokens * BYTES_PER_OUTPUT_TOKEN // 4
    periodic = min(limit_of(rules, period) for period in range(1, LONG_PERIOD + 1))
    least = min(periodic, rules.max_trailing_whitespace, thought, 2 * BLOCK)
    return max(least, BLOCK)


class _Thinking:
    """Counts reasoning: all of a reasoning text; of a visible one, what its first tag opens."""

    __slots__ = ("_closer", "_length", "_room", "_state", "_tail", "tokens")

    def __init__(self, rules: GenerationSettings, reasoning: bool) -> None:
        self.tokens = rules.max_reasoning_tokens
        self._room = self.tokens * BYTES_PER_OUTPUT_TOKEN  # bytes that may still come
        self._state = "inside" if reasoning else "before"
        self._closer = ""
        self._length = 0
        self._tail = ""  # not counted yet: it may be the beginning of a tag

    def feed(self, piece: str) -> int | None:
        """The length of text at which it is known to be too much, once it is."""
        self._length += len(piece)
        if self._state == "after":
            return None
        text = self._tail + piece
        if self._state == "before":
            text = text.lstrip()
            self._tail = text
            if text in _BEGINNINGS:
                return None  # as far as it goes
            if not text.startswith(_OPENERS):
                self._state, self._tail = "after", ""
                return None
            opener = next(word for word in _OPENERS if text.startswith(word))
            self._state, self._closer = "inside", REASONING[opener]
        end = text.find(self._closer) if self._closer else -1
        if end >= 0:
            self._state = "after"
        else:
            end = max(len(text) - max(len(self._closer) - 1, 0), 0)
        inside, self._tail = text[:end], text[end:]
        return self._passed(inside, self._length - len(text))

    def _passed(self, inside: str, start: int) -> int | None:
        """Count what is inside; it begins at ``start``."""
        if inside.isascii():
            size, most = len(inside), self._room
        else:
            data = inside.encode("utf-8", "surrogatepass")
            size = len(data)
            most = len(data[: self._room].decode("utf-8", "ignore")) if size > self._room else 0
        if size > self._room:
            return start + most + 1 + max(len(self._closer) - 1, 0)
        self._room -= size
        return None


class _Watches(NamedTuple):
    """What a text is looked at by, but for calls, once there can be anything to find."""

    periodic: PeriodicText
    white: WhitespaceRun
    restated: Restated
    thinking: _Thinking
