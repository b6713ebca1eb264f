"""A call whose result has just come: made again at once, it may be a wait, or the model is lost.

A weak model that is told so goes astray more often than not; a stronger one that is asked in its
place, and told nothing, sees what is to be done next.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from ..settings import LoopDetectionSettings
from .finding import Finding
from .history import History
from .turn import Turn

# Characters of a result that may be a page, and how many times longer than its call it is.
_PAGE: Final = 2_000
_SHARE: Final = 20


def wanted(history: History, written: int, rules: LoopDetectionSettings) -> Finding | None:
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
