"""Finds loops in a history, and a call that the model makes again at once.

:func:`findings` asks each row of ``DETECTORS`` about the newest turns (``runs.py``). If the newest
turn is a reply that is being judged, its results are unknown, and the limit is the one for a break;
else the agent has acted already, and the limit is the one for a hint.

:func:`second_opinion` finds a call that is made again right after its result. The model may be
waiting, or it may be lost. A weak model mostly goes astray if a hint tells it so; a stronger model
that is asked in its place, without a hint, sees what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from operator import attrgetter
from typing import Final, NamedTuple

from ..frozen import frozen
from ..settings import LoopDetectionSettings
from . import runs
from .call_keys import digest
from .history import History
from .turn import Turn

# A result is a page if it has more characters than _PAGE, and than _SHARE times the arguments.
_PAGE: Final = 2_000
_SHARE: Final = 20


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
    length: int = 0  # turns of the run
    confidence: float | None = None  # the loop model's, from 0 to 1
    reasoning: str = ""  # the loop model's, where the settings let us keep it


@frozen
class Detector:
    """One way to compare the results of two turns. Both ways report a ``repetition``."""

    name: str  # as in docs/loops.md
    compared: runs.Compared  # reads the digest that has to be equal
    patience: int  # the settings' laps are multiplied by this
    certain: bool  # whether a finding is surely a loop, not a poll that makes progress


# Each row can be left out by itself. The first one that finds a loop describes it.
DETECTORS: tuple[Detector, ...] = (
    Detector("repetition", attrgetter("digest"), patience=1, certain=True),
    Detector("numbers", attrgetter("shape"), patience=4, certain=False),
)


def findings(history: History, rules: LoopDetectionSettings) -> Iterator[Finding]:
    """Yield the loops that the newest turn is part of, at most one per detector."""
    for detector in DETECTORS if history.repeats else ():
        if (finding := _going_round(history, detector, rules)) is not None:
            yield finding


def breaks(history: History, rules: LoopDetectionSettings) -> Finding | None:
    """Return the loop to break if the newest turn, a reply, closes one."""
    return next(findings(history, rules), None)


def could_break(history: History, rules: LoopDetectionSettings) -> bool:
    """Whether the next reply may close a loop that has to be broken."""
    for detector in DETECTORS if history.repeats else ():
        run = runs.newest(history, detector.compared, rules)
        laps = detector.patience * laps_of(run.tools, rules).to_break
        if run.circle(laps, rules.max_period, foreseen=True):
            return True
    return False


def _going_round(
    history: History, detector: Detector, rules: LoopDetectionSettings
) -> Finding | None:
    run = runs.newest(history, detector.compared, rules)
    limits = laps_of(run.tools, rules)
    judging = not history.pending.known
    limit = limits.to_break if judging else limits.to_warn
    circle = run.circle(detector.patience * limit, rules.max_period)
    if circle is None:
        return None
    laps = circle.begun if judging else circle.made
    return Finding(
        "repetition",
        laps,
        next(iter(_tools(circle)), ""),
        f"{digest(*map(str, sorted({turn.action for turn in circle.turns}))):016x}",
        _hint(circle, laps),
        tuple([turn.place for turn in circle.turns[: -1 if judging else None]]),
        certain=detector.certain,
        length=len(circle.turns),
    )


def _tools(circle: runs.Circle) -> list[str]:
    return list(dict.fromkeys([call.name for turn in circle.turns for call in turn.calls]))


def _hint(circle: runs.Circle, laps: int) -> str:
    """Return an order: a small model would repeat a statement as its answer."""
    tools = _tools(circle)
    if not tools:
        return (
            f"Stop repeating the same answer ({_times(laps)} so far). Say something new, do the "
            "next step, or finish."
        )
    tool_list = ", ".join([tool[:64] for tool in tools[:4]] + ["…"] * (len(tools) > 4))
    if circle.period == 1:
        return (
            f"Stop calling {tool_list} with the same arguments: {_times(laps)}, the same result. "
            "Use that result, call something else, or give the final answer."
        )
    return (
        f"Stop repeating the same {circle.period} steps ({tool_list}): {_times(laps)}, the same "
        "results. Use those results, take another approach, or give the final answer."
    )


class Laps(NamedTuple):
    """How many laps are too many.

    A tool's own limits replace the common ones. Of several tools, the highest limit counts.
    """

    to_warn: int
    to_break: int


def laps_of(tools: Iterable[str], rules: LoopDetectionSettings) -> Laps:
    """Return the limits for a run that calls these tools."""
    warn = _highest(tools, rules, "warn_threshold", rules.warn_threshold)
    return Laps(warn, _highest(tools, rules, "duplicate_threshold", rules.duplicate_threshold))


def identical_hard(tools: Iterable[str], rules: LoopDetectionSettings) -> int:
    """Return how many same calls with the same result a second tier can no longer confirm."""
    return _highest(tools, rules, "identical_hard", rules.tool_calls.identical_hard)


def _highest(tools: Iterable[str], rules: LoopDetectionSettings, name: str, common: int) -> int:
    overrides = rules.tool_calls.overrides
    limits = [getattr(overrides.get(tool), name, None) for tool in tools]
    return max([common if limit is None else limit for limit in limits], default=common)


def second_opinion(
    history: History, argument_chars: int, rules: LoopDetectionSettings
) -> Finding | None:
    """Return a finding if the newest turn makes the last turn's calls again, and all have results.

    Return None if the user has spoken since, if the results of the run differ, or if a short call
    brought a long page, for the next page may follow. ``argument_chars``: characters of the calls'
    arguments.
    """
    if not rules.second_opinion or len(history.turns) < 2:
        return None
    newest, previous = history.turns[-1], history.turns[-2]
    results = newest.inputs.results
    if (
        newest.inputs.user
        or not results
        or None in results
        or not _makes_same_calls(newest, previous, rules)
    ):
        return None
    size = sum([result.size for result in results if result is not None])
    if size > max(_PAGE, _SHARE * argument_chars):
        return None
    run = list(
        takewhile(lambda turn: _makes_same_calls(newest, turn, rules), reversed(history.turns[:-1]))
    )
    if any(turn.inputs.results != results for turn in run[:-1]):
        return None
    tool = newest.calls[0].name
    places = tuple([turn.place for turn in reversed(run)])
    return Finding("repetition", 2, tool, f"{newest.action:016x}", "", places)


def _makes_same_calls(turn: Turn, other: Turn, rules: LoopDetectionSettings) -> bool:
    waits = any(call.name in rules.exempt_tools for call in turn.calls)
    return bool(turn.calls) and not waits and turn.calls == other.calls


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
