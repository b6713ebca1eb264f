"""A call whose result has just come: made again at once, it may be a wait, or the model is lost.

A weak model that is told so goes astray more often than not; a stronger one that is asked in its
place, and told nothing, sees what is to be done next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from ...core.history import History
from ...core.turn import Turn
from ...settings import LoopDetectionSettings
from .finding import Finding, State


def may_be_wanted(history: History, names: Sequence[str], rules: LoopDetectionSettings) -> bool:
    """Whether a reply that calls these tools could be one; seen without reading its arguments."""
    if not rules.second_opinion or not names or not history.turns:
        return False
    last = history.turns[-1].calls
    return len(last) == len(names) and sorted(call.name for call in last) == sorted(names)


def wanted(history: History, rules: LoopDetectionSettings) -> Finding | None:
    """Whether the newest turn only makes the last one's calls again, whose results are all there.

    Not where the user has spoken since, nor where the results of these calls have moved before.
    """
    if not rules.second_opinion or len(history.turns) < 2:
        return None
    new, last = history.turns[-1], history.turns[-2]
    results = new.inputs.results
    if new.inputs.user or not results or None in results or not _same(new, last, rules):
        return None
    if any(turn.inputs.results != results for turn in run_of(history, rules)[:-1]):
        return None
    pattern = f"{new.action:016x}"
    tool = new.calls[0].name
    place, actions = last.place, frozenset({new.action})
    return Finding("repetition", State.WARNING, 2, tool, pattern, "", place, actions)


def run_of(history: History, rules: LoopDetectionSettings) -> list[Turn]:
    """The turns before the newest that made its calls one after the other, the last first."""
    new = history.turns[-1]
    return list(takewhile(lambda turn: _same(new, turn, rules), reversed(history.turns[:-1])))


def _same(one: Turn, other: Turn, rules: LoopDetectionSettings) -> bool:
    if not one.calls or any(call.name in rules.exempt_tools for call in one.calls):
        return False
    return sorted(call.exact for call in one.calls) == sorted(call.exact for call in other.calls)
