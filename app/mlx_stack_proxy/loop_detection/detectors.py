"""The detectors, in the order in which a loop gets its name. Each can be left out by itself.

A detector is a function of a history, seen from its newest turn: what its results are isn't known
where that is a reply which is judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from ..settings import LoopDetectionSettings
from . import overrides, runs
from .call_keys import digest
from .finding import Finding, times
from .history import History

# So many laps whose results differ in numbers alone count as one: it may be a poll that moves.
NUMBERS: Final = 4


class Detector(Protocol):
    def __call__(self, history: History, rules: LoopDetectionSettings) -> Finding | None: ...


def repetition(history: History, rules: LoopDetectionSettings) -> Finding | None:
    """The newest turns go round: the same actions bring the same."""
    return _going_round(history, runs.newest(history, runs.exactly, rules), rules, 1)


def numbers(history: History, rules: LoopDetectionSettings) -> Finding | None:
    """The same, where the results differ in their numbers, and for longer."""
    run = runs.newest(history, runs.but_for_numbers, rules)
    return _going_round(history, run, rules, NUMBERS)


DETECTORS: Final[dict[str, Detector]] = {
    "repetition": repetition,
    "numbers": numbers,
}


def findings(history: History, rules: LoopDetectionSettings) -> Iterator[Finding]:
    """What the detectors find in a history, seen from its newest turn."""
    for detector in DETECTORS.values() if history.turns else ():
        if (found := detector(history, rules)) is not None:
            yield found


def breaks(closed: History, rules: LoopDetectionSettings) -> Finding | None:
    """The loop that the newest turn, a reply, closes, if there is one: it is to be broken."""
    return next(findings(closed, rules), None)


def could_break(history: History, rules: LoopDetectionSettings) -> bool:
    """Whether the next reply may be one that has to be broken."""
    for came, factor in ((runs.exactly, 1), (runs.but_for_numbers, NUMBERS)):
        run = runs.newest(history, came, rules)
        _, hard = overrides.repetition(run.tools, rules)
        if run.circle(factor * hard, rules.max_period, foreseen=True):
            return True
    return False


def _going_round(
    history: History, run: runs.Run, rules: LoopDetectionSettings, factor: int
) -> Finding | None:
    judged = not history.pending.known
    limit = factor * overrides.repetition(run.tools, rules)[judged]
    circle = run.circle(limit, rules.max_period)
    if circle is None:
        return None
    laps = circle.begun if judged else circle.made
    return Finding(
        "repetition",
        laps,
        next(iter(_tools(circle)), ""),
        f"{digest(*map(str, sorted({turn.action for turn in circle.turns}))):016x}",
        _hint(circle, laps),
        tuple([turn.place for turn in circle.turns[: -1 if judged else None]]),
        sure=factor == 1,
        length=len(circle.turns),
    )


def _tools(circle: runs.Circle) -> list[str]:
    return list(dict.fromkeys([call.name for turn in circle.turns for call in turn.calls]))


def _hint(circle: runs.Circle, laps: int) -> str:
    tools = _tools(circle)
    if not tools:
        return (
            f"You have given the same answer {times(laps)}. Do not repeat it: say something new, "
            "do the next step, or finish."
        )
    shown = ", ".join([tool[:64] for tool in tools[:4]] + ["…"] * (len(tools) > 4))
    if circle.period == 1:
        return (
            f"You have called {shown} with the same arguments {times(laps)} and got the same "
            "result. Do not call it again: use the result you have, call something else, or answer "
            "with what you know."
        )
    return (
        f"Your last {len(circle.turns)} steps only repeat {circle.period} steps that you made "
        f"before ({shown}), with the same results. Do not go round again: use the results you "
        "have, take another approach, or answer with what you know."
    )
