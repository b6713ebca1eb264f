"""The text, the reasoning or the arguments of one call while they come: what all rules share.

Nothing is looked at for each chunk: pieces wait until the text has reached the next length at which
it is looked at, 64 characters on or where what repeats is enough. What is decided there depends on
the text up to there alone, however it is cut into chunks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, Protocol

from ...settings import GenerationSettings
from ...wire.prompt_size import BYTES_PER_OUTPUT_TOKEN
from ...wire.thoughts import REASONING
from .calls import WrittenCalls
from .fences import Fences
from .limits import About, Found, Kind, RepeatedCall, Rule, characters
from .periods import BLOCK, Periods
from .phrases import Phrases, Sentences

# The first look: nothing shorter is too much, at the defaults.
FIRST: Final = 2 * BLOCK
_OPENERS = tuple(REASONING)


class Thinking:
    """Reasoning that goes on for too long: all of a reasoning text; of an answer, what its first
    tag opens.
    """

    __slots__ = ("_closer", "_most", "_read", "_size", "_state")

    def __init__(self, about: About) -> None:
        self._most = about.rules.max_reasoning_tokens * BYTES_PER_OUTPUT_TOKEN
        self._closer = ""  # none: it is reasoning up to its end
        self._state = "inside" if about.kind == "reasoning" else "before"
        self._read = 0
        self._size = 0  # bytes

    def look(self, text: str, end: int) -> Found | None:
        if self._state == "before":
            self._begin(text[:end].lstrip())
        if self._state != "inside":
            return None
        start = max(self._read - len(self._closer), 0)
        closed = text.find(self._closer, start, end) if self._closer else -1
        if closed >= 0:
            self._state, end = "after", closed
        self._size += len(text[self._read : end].encode("utf-8", "surrogatepass"))
        self._read = end
        return Found("reasoning", 0, self._read) if self._size > self._most else None

    def _begin(self, text: str) -> None:
        opener = next((word for word in _OPENERS if text.startswith(word)), "")
        if opener:
            self._state, self._closer = "inside", REASONING[opener]
        elif not any(word.startswith(text) for word in _OPENERS):
            self._state = "after"


class Detector(Protocol):
    """One rule. ``look`` decides by ``text[:end]``."""

    def look(self, text: str, end: int) -> Found | None: ...


# The rules, in the order in which they are asked. Each can be left out by itself.
DETECTORS: Final[dict[Rule, Callable[[About], Detector]]] = {
    "period": Periods,
    "phrase": Phrases,
    "sentences": Sentences,
    "reasoning": Thinking,
}
IN_ARGUMENTS: Final = ("period",)


class Flow:
    """One text. Without ``rules`` it is never looked at.

    ``late``: the characters up to the tool-call limit, beyond which less is enough.
    A new piece goes to ``waiting``, its size to ``length``; then, from the length ``due`` on, it is
    to be looked at. ``size``: its UTF-8 bytes, of all but the characters that still wait.
    ``calls``: what reads the calls in it.
    """

    __slots__ = (
        "_about",
        "_calls",
        "_detectors",
        "_periods",
        "_text",
        "due",
        "length",
        "size",
        "waiting",
    )

    def __init__(
        self,
        rules: GenerationSettings | None,
        kind: Kind = "text",
        *,
        late: int = sys.maxsize,
        calls: WrittenCalls | None = None,
    ) -> None:
        self._about = About(rules or GenerationSettings(), kind, late, Fences())
        self._calls = calls
        self._detectors = [
            make(self._about)
            for rule, make in DETECTORS.items()
            if kind != "arguments" or rule in IN_ARGUMENTS
        ]
        self._periods = next((one for one in self._detectors if isinstance(one, Periods)), None)
        self._text = ""
        self.waiting: list[str] = []
        self.due = sys.maxsize if rules is None else FIRST
        self.length = 0
        self.size = 0

    def look(self) -> Found | RepeatedCall | None:
        """The first thing found in what waited. Once something is, there is no more to look at."""
        piece = "".join(self.waiting)
        self.waiting.clear()
        self.size += len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogatepass"))
        text, self._text = self._text, ""
        text += piece  # grows where it stands, for nothing else holds it
        self._text = text
        del text
        found: Found | RepeatedCall | None = None
        while found is None and self.due <= self.length:
            found = self._decide(self.due)
        return found

    def _decide(self, upto: int) -> Found | RepeatedCall | None:
        """By the first ``upto`` characters alone."""
        found = None
        for detector in self._detectors:
            found = found or detector.look(self._text, upto)
        self.due = upto - upto % BLOCK + BLOCK
        periods = self._periods
        if periods is None:
            return found
        if periods.due > upto:
            self.due = min(self.due, periods.due)
        return found if self._calls is None else self._beside_calls(found, upto, periods.laps)

    def _beside_calls(
        self, found: Found | None, upto: int, laps: int
    ) -> Found | RepeatedCall | None:
        """What of it counts in a text that may hold calls.

        Calls that repeat are a text that goes round too, but the first ones can be delivered. What
        is written into a call is arguments.
        """
        assert self._calls is not None
        repeated = self._calls.look(self._text, upto, laps, found)
        if repeated is not None or found is None or not self._calls.is_open:
            return repeated or found
        return found if self._is_too_much_written(found) else None

    def _is_too_much_written(self, found: Found) -> bool:
        if found.rule != "period":
            return found.rule == "reasoning"
        enough = characters(self._about.rules, "arguments", len(found.lap), late=False)
        return found.end - found.start >= enough
