"""What a detector finds, and what all of them ask of a history."""

from __future__ import annotations

from collections.abc import Iterable

from ..frozen import frozen
from ..settings import LoopDetectionSettings
from .turn import Turn


@frozen
class Finding:
    """A loop that the newest turn is part of."""

    detector: str
    repeats: int  # laps, or calls
    tool: str  # "": the turns make no calls
    pattern: str  # a digest (hex) that names the loop, the same as long as the loop goes on
    hint: str  # what to tell the model
    run: tuple[int, ...]  # the places of the run's turns, as far as the transcript has them
    certain: bool = True  # False: results changed in their numbers, so it may be a poll
    confirmable: bool = False  # it counts as no loop if a second tier wants the same calls
    length: int = 0  # turns of the run
    confidence: float | None = None  # the loop model's, from 0 to 1
    reasoning: str = ""  # the loop model's, where the settings let us keep it


def is_exempt(turn: Turn, rules: LoopDetectionSettings) -> bool:
    """Whether the turn calls a tool that may be called over and over."""
    return any(call.name in rules.exempt_tools for call in turn.calls)


def tools_of(turns: Iterable[Turn]) -> list[str]:
    """Return the names of the tools that are called, in their order."""
    return list(dict.fromkeys([call.name for turn in turns for call in turn.calls]))


def listed(tools: list[str], between: str = ", ") -> str:
    return between.join([tool[:64] for tool in tools[:4]] + ["…"] * (len(tools) > 4))
