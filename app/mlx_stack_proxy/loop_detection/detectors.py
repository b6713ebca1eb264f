"""What is found in a history: loops by the detectors, and a call that is made again at once.

A detector is a row that says how results are compared. A history is seen from its newest turn: what
its results are isn't known where that is a reply which is judged. The detectors stand in the order
in which a loop gets its name, and each can be left out by itself.

A call whose result has just come and that is made again may be a wait, or the model is lost. A weak
model that is told so goes astray more often than not; a stronger one that is asked in its place,
and told nothing, sees what is to be done next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final

from ..frozen import frozen
from ..settings import LoopDetectionSettings
from . import runs
from .call_keys import digest
from .history import History
from .turn import Turn

# Characters of a result that may be a page, and how many times longer than its call it is.
_PAGE: Final = 2_000
_SHARE: Final = 20


@frozen
class Finding:
    """A loop in a history, seen from its newest turn."""

    detector: str
    repeats: int  # laps, or calls
    tool: str  # empty where there is none
    pattern: str  # a digest (hex) that stays the same as long as what repeats does
    hint: str  # what to tell the model
    run: tuple[int, ...]  # the places of the run's turns, as far as the transcript has them
    sure: bool = True  # no result moved, not even a number in it
    length: int = 0  # turns of the run
    confidence: float | None = None  # the loop model's, from 0 to 1
    reasoning: str = ""  # the loop model's, where the settings let us keep it


@frozen
class Detector:
    """``came``: how results are compared. ``patience``: so many times the settings' laps."""

    came: runs.Came
    patience: int = 1


DETECTORS: Final[dict[str, Detector]] = {
    "repetition": Detector(runs.exactly),
    # Results differ in their numbers alone: it may be a poll that gets on.
    "numbers": Detector(runs.but_for_numbers, patience=4),
}


def findings(history: History, rules: LoopDetectionSettings) -> Iterator[Finding]:
    """What the detectors find in a history, seen from its newest turn."""
    for detector in DETECTORS.values() if history.turns else ():
        if (found := _going_round(history, detector, rules)) is not None:
            yield found


def breaks(closed: History, rules: LoopDetectionSettings) -> Finding | None:
    """The loop that the newest turn, a reply, closes, if there is one: it is to be broken."""
    return next(findings(closed, rules), None)


def could_break(history: History, rules: LoopDetectionSettings) -> bool:
    """Whether the next reply may be one that has to be broken."""
    for detector in DETECTORS.values():
        run = runs.newest(history, detector.came, rules)
        _, hard = laps_of(run.tools, rules)
        if run.circle(detector.patience * hard, rules.max_period, foreseen=True):
            return True
    return False


def _going_round(
    history: History, detector: Detector, rules: LoopDetectionSettings
) -> Finding | None:
    run = runs.newest(history, detector.came, rules)
    judged = not history.pending.known
    limit = detector.patience * laps_of(run.tools, rules)[judged]
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
        sure=detector.patience == 1,
        length=len(circle.turns),
    )


def _tools(circle: runs.Circle) -> list[str]:
    return list(dict.fromkeys([call.name for turn in circle.turns for call in turn.calls]))


def _hint(circle: runs.Circle, laps: int) -> str:
    tools = _tools(circle)
    if not tools:
        return (
            f"You have given the same answer {_times(laps)}. Do not repeat it: say something new, "
            "do the next step, or finish."
        )
    shown = ", ".join([tool[:64] for tool in tools[:4]] + ["…"] * (len(tools) > 4))
    if circle.period == 1:
        return (
            f"You have called {shown} with the same arguments {_times(laps)} and got the same "
            "result. Do not call it again: use the result you have, call something else, or answer "
            "with what you know."
        )
    return (
        f"Your last {len(circle.turns)} steps only repeat {circle.period} steps that you made "
        f"before ({shown}), with the same results. Do not go round again: use the results you "
        "have, take another approach, or answer with what you know."
    )


# How often is too often, for these tools: the settings' numbers, and a tool's own. Where several
# tools are in question the most patient one's numbers count.


def laps_of(tools: Iterable[str], rules: LoopDetectionSettings) -> tuple[int, int]:
    """Laps until the hint and until the break."""
    warn = _most(tools, rules, "warn_threshold", rules.warn_threshold)
    return warn, _most(tools, rules, "duplicate_threshold", rules.duplicate_threshold)


def identical_hard(tools: Iterable[str], rules: LoopDetectionSettings) -> int:
    """Same calls with the same result from which on a second tier's word counts no more."""
    return _most(tools, rules, "identical_hard", rules.tool_calls.identical_hard)


def _most(tools: Iterable[str], rules: LoopDetectionSettings, name: str, common: int) -> int:
    given = rules.tool_calls.overrides
    own = [getattr(given.get(tool), name, None) for tool in tools]
    return max([common if one is None else one for one in own], default=common)


def second_opinion(history: History, written: int, rules: LoopDetectionSettings) -> Finding | None:
    """Whether the newest turn only makes the last one's calls again, whose results are all there.

    Not where the user has spoken since, nor where the results have moved meanwhile, nor where a
    short call brought a page: there may be a next one. ``written``: characters of the
    calls' arguments.
    """
    if not rules.second_opinion or len(history.turns) < 2:
        return None
    new, last = history.turns[-1], history.turns[-2]
    results = new.inputs.results
    if new.inputs.user or not results or None in results or not _same(new, last, rules):
        return None
    size = sum([result.size for result in results if result is not None])
    if size > max(_PAGE, _SHARE * written):
        return None
    run = list(takewhile(lambda turn: _same(new, turn, rules), reversed(history.turns[:-1])))
    if any(turn.inputs.results != results for turn in run[:-1]):
        return None
    tool = new.calls[0].name
    places = tuple([turn.place for turn in reversed(run)])
    return Finding("repetition", 2, tool, f"{new.action:016x}", "", places)


def _same(one: Turn, other: Turn, rules: LoopDetectionSettings) -> bool:
    waits = any(call.name in rules.exempt_tools for call in one.calls)
    return bool(one.calls) and not waits and one.calls == other.calls


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
