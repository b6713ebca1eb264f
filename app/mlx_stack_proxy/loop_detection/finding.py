"""What a detector finds."""

from __future__ import annotations

from ..frozen import frozen


@frozen
class Finding:
    """A loop in a history, seen from its newest turn.

    ``repeats``: laps, or calls. ``tool``: the tool in question, empty where there is none.
    ``pattern``: a digest (hex) that stays the same as long as what repeats does. ``hint``: what to
    tell the model. ``run``: the places of the run's turns, as far as the transcript has them.
    ``sure``: no result moved, not even a number in it. ``length``: turns of the run.
    ``confidence``: a judge's, from 0 to 1; ``reasoning``: what it said to it, where that may be
    kept.
    """

    detector: str
    repeats: int
    tool: str
    pattern: str
    hint: str
    run: tuple[int, ...]
    sure: bool = True
    length: int = 0
    confidence: float | None = None
    reasoning: str = ""


def times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
