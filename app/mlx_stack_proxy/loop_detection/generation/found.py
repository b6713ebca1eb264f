"""What a rule has found in a text."""

from __future__ import annotations

from typing import Literal

from ...frozen import frozen

Rule = Literal["period", "phrase", "sentences", "reasoning"]


@frozen
class Found:
    """``text[start:end]``, indices into the whole text, is too much by this rule.

    ``lap``: what repeats, as it stands at the end; "" where no lap is like another.
    """

    rule: Rule
    start: int
    end: int
    lap: str = ""

    @property
    def laps(self) -> int:
        """How many laps there are; characters where there are none."""
        return (self.end - self.start) // max(len(self.lap), 1)


@frozen
class RepeatedCall:
    """A call written as text is one too many."""

    tool: str
