"""The text, or the reasoning, of one choice while it comes: what all watchers of it share.

Nothing is looked at for each chunk: pieces wait until the text has reached the next length at which
something could be decided, at most 64 characters on.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....core.prompt_size import BYTES_PER_OUTPUT_TOKEN
from ....settings import GenerationSettings
from ....tool_calls.formats.table import REASONING
from .periodic import BLOCK, PeriodicText, Repetition
from .whitespace import WhitespaceRun
from .written_calls import WrittenCalls


@dataclass(frozen=True, slots=True)
class EndlessWhitespace:
    """``text[start:end]`` is whitespace, one character more than is allowed."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TooMuchReasoning:
    """The reasoning has gone on for more than its tokens, as estimated."""

    tokens: int


@dataclass(frozen=True, slots=True)
class RepeatedCall:
    """A call written as text is one too many."""

    tool: str


Found = Repetition | EndlessWhitespace | TooMuchReasoning | RepeatedCall


class Flow:
    """One text. ``rules``: None where generation isn't watched. ``calls``: for text, not reasoning.

    ``size``: its UTF-8 bytes, of all but the characters that still wait.
    """

    __slots__ = ("_calls", "_due", "_periodic", "_thinking", "_waiting", "_white", "length", "size")

    def __init__(
        self,
        rules: GenerationSettings | None,
        *,
        calls: WrittenCalls | None = None,
        reasoning: bool = False,
    ) -> None:
        self._periodic = PeriodicText(rules) if rules is not None else None
        self._white = WhitespaceRun(rules.max_trailing_whitespace) if rules is not None else None
        self._thinking = _Thinking(rules, reasoning) if rules is not None else None
        self._calls = calls
        self._waiting: list[str] = []
        self._due = BLOCK
        self.length = 0
        self.size = 0

    def feed(self, piece: str) -> Found | None:
        """Take a piece; the first thing found. Once something is, feeding has no more meaning."""
        self._waiting.append(piece)
        self.length += len(piece)
        if self.length < self._due:
            return None
        return self._look()

    def _look(self) -> Found | None:
        piece = "".join(self._waiting)
        self._waiting.clear()
        size = len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogatepass"))
        self.size += size
        found = self._in_generation(piece, size)
        if self._calls is not None:
            # Calls that repeat are a periodic text too, but what came before can be delivered.
            tool = self._calls.feed(piece, now=found is not None)
            found = RepeatedCall(tool) if tool is not None else found
        self._due = self.length + BLOCK
        if self._periodic is not None and self._white is not None:
            self._due = min(self._periodic.due, self._white.due)
        return found

    def _in_generation(self, piece: str, size: int) -> Found | None:
        if self._periodic is None or self._white is None or self._thinking is None:
            return None
        repetition = self._periodic.feed(piece)
        blank = self._white.feed(piece)
        if blank is not None and (repetition is None or blank[1] <= repetition.end):
            return EndlessWhitespace(*blank)
        if repetition is not None:
            return repetition
        tokens = self._thinking.feed(piece, size)
        return TooMuchReasoning(tokens) if tokens else None


class _Thinking:
    """Counts reasoning: all of a reasoning text; of a visible one, what its first tag opens."""

    __slots__ = ("_closer", "_limit", "_size", "_state", "_tail")

    def __init__(self, rules: GenerationSettings, reasoning: bool) -> None:
        self._limit = rules.max_reasoning_tokens * BYTES_PER_OUTPUT_TOKEN
        self._state = "inside" if reasoning else "before"
        self._closer = ""
        self._size = 0
        self._tail = ""

    def feed(self, piece: str, size: int) -> int:
        """The tokens, once they are too many; else 0."""
        if self._state == "after":
            return 0
        if self._state == "before":
            lead = (self._tail + piece).lstrip()
            if not lead:
                return 0
            opener = next((word for word in REASONING if lead.startswith(word)), None)
            if opener is None:
                self._state = "after"
                return 0
            self._state = "inside"
            self._closer = REASONING[opener]
        if self._closer:
            if self._closer in self._tail + piece:
                self._state = "after"
                return 0
            self._tail = piece[-len(self._closer) :]
        self._size += size
        return self._size // BYTES_PER_OUTPUT_TOKEN if self._size > self._limit else 0
