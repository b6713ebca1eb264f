"""Watches one growing text: a reply's text, its reasoning, or the arguments of one call.

The text grows in the reply; :class:`Flow` checks it once it has reached a set length: 64 characters
after the last check, or earlier where a repetition becomes too long. Each rule of ``RULES`` sees
the text up to that length only, so the result doesn't depend on how chunks split the text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from ...settings import GenerationSettings
from ...wire.prompt_size import BYTES_PER_OUTPUT_TOKEN
from ...wire.thoughts import REASONING
from .calls import WrittenCalls
from .limits import Excess, Fences, Kind, Rule, RuleContext, characters
from .periods import BLOCK, Periods
from .phrases import phrase, sentences

# The length of the first check: with the default settings no shorter text is too long.
FIRST: Final = 2 * BLOCK
_OPENERS = tuple(REASONING)


class Thinking:
    """Detects reasoning that is too long, as a text of its own or after an answer's first tag."""

    def __init__(self, about: RuleContext) -> None:
        self._max_bytes = about.rules.max_reasoning_tokens * BYTES_PER_OUTPUT_TOKEN
        self._closer = ""  # the tag that ends the reasoning; "": the text's end does
        self._state = "inside" if about.kind == "reasoning" else "before"
        self._read_to = 0
        self._size = 0  # UTF-8 bytes of reasoning

    def __call__(self, text: str, end: int) -> Excess | None:
        if self._state == "before":
            self._begin(text[:end].lstrip())
        if self._state != "inside":
            return None
        start = max(self._read_to - len(self._closer), 0)
        closed = text.find(self._closer, start, end) if self._closer else -1
        if closed >= 0:
            self._state, end = "after", closed
        self._size += len(text[self._read_to : end].encode("utf-8", "surrogatepass"))
        self._read_to = end
        return Excess("reasoning", 0, self._read_to) if self._size > self._max_bytes else None

    def _begin(self, text: str) -> None:
        opener = next((tag for tag in _OPENERS if text.startswith(tag)), "")
        if opener:
            self._state, self._closer = "inside", REASONING[opener]
        elif not any(tag.startswith(text) for tag in _OPENERS):
            self._state = "after"


TextRule = Callable[[str, int], Excess | None]  # examines the end of the text up to a length
# The rules in order. Each can be removed by itself.
RULES: Final[dict[Rule, Callable[[RuleContext], TextRule]]] = {
    "period": Periods,
    "phrase": lambda about: partial(phrase, about),
    "sentences": lambda about: partial(sentences, about),
    "reasoning": Thinking,
}
IN_ARGUMENTS: Final = ("period",)


class Flow:
    """Watches one text. The caller calls :meth:`look` once its length has reached ``due``."""

    def __init__(
        self,
        rules: GenerationSettings,
        kind: Kind = "text",
        *,
        late: int = sys.maxsize,  # the tool-call limit in characters; limits beyond it are stricter
        calls: WrittenCalls | None = None,  # finds the calls in the text
    ) -> None:
        self._about = RuleContext(rules, kind, late, Fences())
        self._calls = calls
        self._rules: dict[Rule, TextRule] = {
            rule: make(self._about)
            for rule, make in RULES.items()
            if kind != "arguments" or rule in IN_ARGUMENTS
        }
        self.due = FIRST  # the length at which to check next

    def look(self, text: str) -> Excess | None:
        """Check the text as it is now. Return the first finding, which ends this text's watch."""
        finding: Excess | None = None
        while finding is None and self.due <= len(text):
            finding = self._decide(text, self.due)
        return finding

    def _decide(self, text: str, upto: int) -> Excess | None:
        """Return the rules' finding in the first ``upto`` characters, and set ``due``."""
        excess = None
        for rule in self._rules.values():
            excess = excess or rule(text, upto)
        self.due = upto - upto % BLOCK + BLOCK
        periods = self._rules.get("period")
        if not isinstance(periods, Periods):
            return excess
        if periods.due > upto:
            self.due = min(self.due, periods.due)
        if self._calls is None:
            return excess
        return self._decide_with_calls(self._calls, text, excess, upto, periods.laps)

    def _decide_with_calls(
        self, calls: WrittenCalls, text: str, excess: Excess | None, upto: int, laps: int
    ) -> Excess | None:
        """Return the finding for a text that may hold calls. ``excess``: without regard to calls.

        Repeated calls are repeating text, too, but the first of them can be delivered, so they take
        precedence. A repetition inside a call has the limits of arguments.
        """
        repeated = calls.look(text, upto, laps, excess)
        if repeated is not None or excess is None or not calls.is_open:
            return repeated or excess
        if excess.rule != "period":
            return excess if excess.rule == "reasoning" else None
        enough = characters(self._about.rules, "arguments", len(excess.lap), late=False)
        return excess if excess.end - excess.start >= enough else None
