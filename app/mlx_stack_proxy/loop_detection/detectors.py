"""Finds loops in a history, and a call that the model makes again at once.

:func:`findings` asks each row of ``DETECTORS`` about the newest turns (``runs.py``). If the newest
turn is a reply that is being judged, its results are unknown, and the limit is the one for a break;
else the agent has acted already, and the limit is the one for a hint.

:func:`second_opinion` finds a call that is made again right after its result. The model may be
waiting, or it may be lost. A weak model mostly goes astray if a hint tells it so; a stronger model
that is asked in its place, without a hint, sees what to do next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from operator import attrgetter
from typing import Final

from ..frozen import frozen
from ..settings import LoopDetectionSettings
from . import runs, specified
from .call_keys import digest
from .finding import Finding, is_exempt, listed, tools_of
from .history import History
from .turn import Turn

# A result is a page if it has more characters than _PAGE, and than _SHARE times the arguments.
_PAGE: Final = 2_000
_SHARE: Final = 20
NUMBERS: Final = 4  # so many times as many laps, if results differ in their numbers

Find = Callable[[History, LoopDetectionSettings], Finding | None]


@frozen
class Detector:
    """One kind of loop. The newest turn is part of what ``find`` returns."""

    name: str  # as in docs/loops.md
    find: Find
    # Whether the next reply, if it makes one call at most, may close a loop that has to be broken.
    may_break: Callable[[History, LoopDetectionSettings], bool]


def _repetition(compared: runs.Compared, patience: int, *, certain: bool, name: str) -> Detector:
    """Return the detector of turns that repeat.

    ``compared``: reads the digest that has to be equal. ``patience``: the settings' laps are
    multiplied by it. ``certain``: whether it is surely a loop, not a poll that makes progress.
    """

    def find(history: History, rules: LoopDetectionSettings) -> Finding | None:
        if not history.repeats:
            return None
        return _going_round(history, compared, patience, rules, certain=certain)

    def may_break(history: History, rules: LoopDetectionSettings) -> bool:
        if not history.repeats:
            return False
        run = runs.newest(history, compared, rules)
        laps = patience * _laps(run.tools, rules, judging=True)
        return run.circle(laps, foreseen=True) is not None

    return Detector(name, find, may_break)


# Each row can be left out by itself. The first one that finds a loop acts; once its hint is given,
# those after it are silent about the same turn.
DETECTORS: tuple[Detector, ...] = (
    Detector("identical_calls", specified.identical_calls, specified.may_be_identical),
    Detector("name_cycle", specified.name_cycle, specified.may_close_cycle),
    Detector("similar_replies", specified.similar_replies, specified.may_be_similar),
    _repetition(attrgetter("digest"), 1, certain=True, name="repetition"),
    _repetition(attrgetter("shape"), NUMBERS, certain=False, name="numbers"),
    Detector("tool_frequency", specified.tool_frequency, specified.may_be_too_frequent),
    Detector("no_progress", specified.no_progress, specified.may_make_no_progress),
)


def findings(history: History, rules: LoopDetectionSettings) -> Iterator[Finding]:
    """Yield the loops that the newest turn is part of, at most one per detector."""
    for detector in DETECTORS:
        if (finding := detector.find(history, rules)) is not None:
            yield finding


def breaks(
    history: History, rules: LoopDetectionSettings, *, uncertain: bool = True
) -> Finding | None:
    """Return the loop to break if the newest turn, a reply, closes one.

    ``uncertain``: whether that includes loops that may be polls.
    """
    found = findings(history, rules)
    return next((finding for finding in found if finding.certain or uncertain), None)


def could_break(history: History, rules: LoopDetectionSettings) -> bool:
    """Whether the next reply may close a loop that has to be broken."""
    return any(detector.may_break(history, rules) for detector in DETECTORS)


def _going_round(
    history: History,
    compared: runs.Compared,
    patience: int,
    rules: LoopDetectionSettings,
    *,
    certain: bool,
) -> Finding | None:
    run = runs.newest(history, compared, rules)
    judging = not history.pending.known
    laps = patience * _laps(run.tools, rules, judging=judging)
    circle = run.circle(laps)
    if circle is None:
        return None
    laps = circle.begun if judging else circle.made
    return Finding(
        "repetition",
        laps,
        next(iter(tools_of(circle.turns)), ""),
        f"{digest(*map(str, sorted({turn.action for turn in circle.turns}))):016x}",
        _hint(circle, laps),
        tuple([turn.place for turn in circle.turns[: -1 if judging else None]]),
        certain=certain,
        confirmable=True,
        length=len(circle.turns),
    )


def _hint(circle: runs.Laps, laps: int) -> str:
    """Return an order: a small model would repeat a statement as its answer."""
    tools = tools_of(circle.turns)
    if not tools:
        return (
            f"Stop repeating the same answer ({_times(laps)} so far). Say something new, do the "
            "next step, or finish."
        )
    tool_list = listed(tools)
    if circle.period == 1:
        return (
            f"Stop calling {tool_list} with the same arguments: {_times(laps)}, the same result. "
            "Use that result, call something else, or give the final answer."
        )
    return (
        f"Stop repeating the same {circle.period} steps ({tool_list}): {_times(laps)}, the same "
        "results. Use those results, take another approach, or give the final answer."
    )


def _laps(tools: Iterable[str], rules: LoopDetectionSettings, *, judging: bool) -> int:
    """Return how many laps are too many: for a reply that is being judged, else for a hint."""
    if judging:
        return _limit(tools, rules, "duplicate_threshold", rules.duplicate_threshold)
    return _limit(tools, rules, "warn_threshold", rules.warn_threshold)


def identical_hard(tools: Iterable[str], rules: LoopDetectionSettings) -> int:
    """Return how many same calls with the same result a second tier can no longer confirm."""
    return _limit(tools, rules, "identical_hard", rules.tool_calls.identical_hard)


def _limit(tools: Iterable[str], rules: LoopDetectionSettings, name: str, common: int) -> int:
    """Return a limit for a run that calls these tools: the highest one.

    A tool's own limit replaces the common one.
    """
    overrides = rules.tool_calls.overrides
    limits = [getattr(overrides.get(tool), name, None) for tool in tools]
    return max([common if limit is None else limit for limit in limits], default=common)


def second_opinion(
    history: History, argument_chars: int, rules: LoopDetectionSettings
) -> Finding | None:
    """Return a finding if the newest turn makes the last turn's calls again, and all have results.

    Return None if the user has spoken since, if the results of the run differ, or if a short call
    brought a long page, because the next page may follow. ``argument_chars``: characters of the
    calls' arguments.
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
    return bool(turn.calls) and not is_exempt(turn, rules) and turn.calls == other.calls


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
