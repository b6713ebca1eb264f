"""Counts how many of the newest turns only repeat earlier ones. The detectors ask nothing else.

A turn repeats if the same action had the same result before in this task. Another action or another
result is news, and so is a turn with an exempt tool or after a user's interjection. If an agent
loops in a cycle of three steps, all its turns but the first three repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ..frozen import frozen
from ..settings import LoopDetectionSettings
from .finding import is_exempt, tools_of
from .history import History
from .turn import Inputs, Turn

# Turns of a lap. Recorded cycles have few tools; three laps of 16 turns are 48 turns without news.
MAX_PERIOD: Final = 16


class Laps(NamedTuple):
    """The newest turns, seen as laps of equal length."""

    period: int  # turns of one lap
    turns: Sequence[Turn]  # those that repeat, so all but the first lap

    @property
    def begun(self) -> int:
        """How many laps were begun, without the first one, in which all was new."""
        return -(-len(self.turns) // self.period)

    @property
    def made(self) -> int:
        """How many laps are complete, the first one included."""
        return len(self.turns) // self.period + 1


@frozen
class Repeats:
    """The newest turns that only repeat."""

    task: Sequence[Turn]  # all turns of the task at hand
    # Each turn's action and result; the result is None for a reply that is being judged.
    keys: Sequence[tuple[int, int | None]]
    start: int  # the first turn that repeats; one past the end if none does

    @property
    def tools(self) -> list[str]:
        return tools_of(self.task[self.start :])

    def circle(self, laps: int, *, foreseen: bool = False) -> Laps | None:
        """Return the circle that has reached ``laps`` laps, the first included; None if none has.

        ``foreseen``: assume that the next reply continues the circle, too.
        """
        limit = len(self.keys) - self.start
        for period in range(1, min(MAX_PERIOD, self.start) + 1):
            length = self._matching(period, limit)
            if length and length + foreseen > (laps - 1) * period:
                return Laps(period, self.task[len(self.keys) - length :])
        return None

    def _matching(self, period: int, limit: int) -> int:
        """Count the newest turns that equal the turn one period earlier, up to ``limit``."""
        keys, count = self.keys, 0
        while count < limit:
            (action, result), earlier = keys[-1 - count], keys[-1 - count - period]
            if action != earlier[0] or result not in (None, earlier[1]):
                break
            count += 1
        return count


NOTHING = Repeats((), (), 0)
Compared = Callable[[Inputs], int]


def newest(history: History, compared: Compared, rules: LoopDetectionSettings) -> Repeats:
    """Return the run that the newest turn is part of, in a history that repeats an action.

    ``compared``: reads the value to compare.
    """
    if history.pending.interjected:
        return NOTHING  # the user spoke, and the effect is not known yet
    turns = history.task
    inputs = [turn.inputs for turn in turns[1:]]
    results = list(map(compared, [*inputs, history.pending] if history.pending.known else inputs))
    first_indexes: dict[tuple[int, int | None], int] = {}
    keys: list[tuple[int, int | None]] = []
    for turn, result in zip(turns, results, strict=False):
        first_indexes.setdefault((turn.action, result), len(keys))
        keys.append((turn.action, result))
    start = len(turns)
    if len(keys) < start:
        if not _goes_on(turns[-1], rules):
            return NOTHING
        keys.append((turns[-1].action, None))
        start -= 1
    while (
        start and _goes_on(turns[start - 1], rules) and first_indexes[keys[start - 1]] < start - 1
    ):
        start -= 1
    return Repeats(turns, keys, start)


def _goes_on(turn: Turn, rules: LoopDetectionSettings) -> bool:
    return not is_exempt(turn, rules) and not turn.inputs.interjected
