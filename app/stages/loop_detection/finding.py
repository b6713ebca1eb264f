"""What a detector is asked, and what it finds."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from ...core.history import History
from ...frozen import frozen
from ...settings import LoopDetectionSettings


class State(IntEnum):
    """How things stand with a session."""

    NORMAL = 0
    WARNING = 1  # the next request gets a hint
    CIRCUIT_BREAK = 2  # the reply is not delivered as it is


@frozen
class Finding:
    """A loop in a history, seen from its newest turn.

    ``repeats``: laps, or calls. ``tool``: the tool in question, empty where there is none.
    ``pattern``: a digest (hex) that stays the same as long as what repeats does. ``hint``: what to
    tell the model. ``place``: where in the transcript the run began. ``actions``: what is done in
    it, as :attr:`Turn.action`. ``confidence``: a judge's, from 0 to 1; ``reasoning``: what it said
    to it, where that may be kept.
    """

    detector: str
    level: State
    repeats: int
    tool: str
    pattern: str
    hint: str
    place: int
    actions: frozenset[int] = frozenset()
    confidence: float | None = None
    reasoning: str = ""


class Detector(Protocol):
    """A rule about histories; it keeps nothing between two questions."""

    name: str

    def find(self, history: History, rules: LoopDetectionSettings) -> Finding | None:
        """The loop that the newest turn is part of, at ``warn`` or ``break`` level."""
        ...

    def could_break(self, history: History, rules: LoopDetectionSettings) -> bool:
        """Whether the next reply, if it makes one call at most, could be found at ``break`` level.

        Where a limit is 1, every call could be.
        """
        ...


def times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
