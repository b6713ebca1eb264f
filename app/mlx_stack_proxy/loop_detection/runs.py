"""The one question of loop detection: how many of the newest turns only repeat?

A turn repeats where the same action brought the same before in this task. Another action, or
another result, is news, and so is what comes after a wait or a word of the user's. In a circle of
three steps all turns but the first three repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..frozen import frozen
from ..settings import LoopDetectionSettings
from .history import History
from .turn import Inputs, Turn


class Circle(NamedTuple):
    """``period``: after so many turns it comes round. ``turns``: those that repeat."""

    period: int
    turns: Sequence[Turn]

    @property
    def begun(self) -> int:
        """How many laps were begun, without the first one, in which all was new."""
        return -(-len(self.turns) // self.period)

    @property
    def made(self) -> int:
        """How many laps are done, with the first one."""
        return len(self.turns) // self.period + 1


@frozen
class Repeats:
    """The newest turns that only repeat."""

    task: Sequence[Turn]  # all turns of the task at hand
    # What was done in each, and what that brought; None for a reply that is judged.
    keys: Sequence[tuple[int, int | None]]
    start: int  # the first turn that repeats; one past the end if none does

    @property
    def tools(self) -> list[str]:
        turns = self.task[self.start :]
        return list(dict.fromkeys([call.name for turn in turns for call in turn.calls]))

    def circle(self, laps: int, max_period: int, *, foreseen: bool = False) -> Circle | None:
        """The circle with which the newest turn goes on after so many laps, the first included.

        ``foreseen``: whatever the next reply does.
        """
        most = len(self.keys) - self.start
        for period in range(1, min(max_period, self.start) + 1):
            length = self._matching(period, most)
            if length and length + foreseen > (laps - 1) * period:
                return Circle(period, self.task[len(self.keys) - length :])
        return None

    def _matching(self, period: int, most: int) -> int:
        """How many of the newest turns are the same as the one a period before; up to ``most``."""
        keys, count = self.keys, 0
        while count < most:
            (action, brought), before = keys[-1 - count], keys[-1 - count - period]
            if action != before[0] or brought not in (None, before[1]):
                break
            count += 1
        return count


NOTHING = Repeats((), (), 0)
Compared = Callable[[Inputs], int]


def newest(history: History, compared: Compared, rules: LoopDetectionSettings) -> Repeats:
    """The run that the newest turn is part of. ``compared``: what of results has to be equal."""
    if not history.repeats or history.pending.interjected:
        return NOTHING  # as nearly always; nobody knows yet what the user's words bring
    turns = history.turns[history.task_start :]
    inputs = [turn.inputs for turn in turns[1:]]
    brought = list(map(compared, [*inputs, history.pending] if history.pending.known else inputs))
    first: dict[tuple[int, int | None], int] = {}
    keys: list[tuple[int, int | None]] = []
    for turn, result in zip(turns, brought, strict=False):
        first.setdefault((turn.action, result), len(keys))
        keys.append((turn.action, result))
    start = len(turns)
    if len(keys) < start:
        if not _goes_on(turns[-1], rules):
            return NOTHING
        keys.append((turns[-1].action, None))
        start -= 1
    while start and _goes_on(turns[start - 1], rules) and first[keys[start - 1]] < start - 1:
        start -= 1
    return Repeats(turns, keys, start)


def _goes_on(turn: Turn, rules: LoopDetectionSettings) -> bool:
    waits = any(call.name in rules.exempt_tools for call in turn.calls)
    return not waits and not turn.inputs.interjected
