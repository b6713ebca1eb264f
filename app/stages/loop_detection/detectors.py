"""The detectors, in the order in which a loop gets its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...core.history import History
from ...settings import LoopDetectionSettings
from . import overrides
from .finding import Detector, Finding, State
from .identical_calls import IdenticalCalls
from .name_cycle import NameCycle
from .repetition import Repetition
from .same_error import SameError
from .tool_frequency import ToolFrequency

_REPETITION: Final = Repetition()
DETECTORS: Sequence[Detector] = (
    _REPETITION,
    IdenticalCalls(),
    NameCycle(),
    ToolFrequency(),
    SameError(),
)
# All others look at calls, and find nothing where the newest turn makes none.
_OF_TEXT: Sequence[Detector] = (_REPETITION,)


def findings(history: History, rules: LoopDetectionSettings) -> Iterator[Finding]:
    """What the detectors find in a history, seen from its newest turn."""
    turns = history.turns
    for detector in DETECTORS if turns and turns[-1].calls else _OF_TEXT:
        if (found := detector.find(history, rules)) is not None:
            yield found


def state(history: History, rules: LoopDetectionSettings) -> State:
    """How things stand."""
    return max((found.level for found in findings(history, rules)), default=State.NORMAL)


def breaks(history: History, rules: LoopDetectionSettings) -> Finding | None:
    """The loop that the newest turn closes, if one is to be broken."""
    for found in findings(history, rules):
        if found.level is State.CIRCUIT_BREAK:
            return found
    return None


def could_break(history: History, rules: LoopDetectionSettings, *, calls: bool = True) -> bool:
    """Whether the next reply may be one that has to be broken.

    Where not, none is that makes one call at most. ``calls`` False: it is known to make none.
    """
    if not calls:
        return _REPETITION.could_break(history, rules)
    return overrides.breaks_at_once(rules) or any(
        detector.could_break(history, rules) for detector in DETECTORS
    )
