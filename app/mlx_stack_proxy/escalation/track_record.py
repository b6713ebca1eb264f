"""How often exchanges were moved up from a tier lately, by how far a task had come.

A weak model does a task's first steps well and loses its way later. Where it does so too often,
the exchanges that come there need not be its any more: what it makes of them would be thrown away.
No I/O, no clock: what was seen long ago is outweighed by what is seen now.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

# Replies of the model in a task at which each stretch begins. The first reply is in none: each task
# begins on the tier that is meant for it.
STRETCHES: Final = (1, 2, 3, 4, 6, 9, 13, 21)
MAX_TURN: Final = STRETCHES[-1]
# Wilson's interval, one-sided, 90 %: 5 of 29 are more than a tenth, as are 10 of 68.
_Z: Final = 1.2816
_LEAST: Final = 5  # moved up; fewer may be one odd agent's
_REMEMBERED: Final = 128  # exchanges of a stretch; then they count half
PROBE_EVERY: Final = 8  # exchanges where a tier fails too often
# Answered in a row, it is trusted again. Where a tenth fails, one in eight such rows comes about.
_WELL: Final = 20


@dataclass(slots=True)
class _Stretch:
    """``failing``: it is too often; ``well``: how many in a row were answered since. ``asked``: how
    many have come that were not tried.
    """

    exchanges: float = 0.0
    moved_up: float = 0.0
    failing: bool = False
    asked: int = 0
    well: int = 0

    def note(self, moved_up: bool, too_often: float) -> None:
        if self.failing:
            self.well = 0 if moved_up else self.well + 1
            if self.well == _WELL:
                self.exchanges = self.moved_up = self.well = 0
                self.failing = False
            return
        if self.exchanges >= _REMEMBERED:
            self.exchanges /= 2
            self.moved_up /= 2
        self.exchanges += 1
        self.moved_up += moved_up
        self.failing = _is_above(too_often, self.moved_up, self.exchanges)


class TrackRecord:
    """Of all tiers. ``too_often``: the share of exchanges moved up that is too much; 1: none is."""

    def __init__(self, too_often: float) -> None:
        self.too_often = too_often
        self._stretches: dict[str, list[_Stretch]] = {}

    def note(self, tier: str, turn: int, *, moved_up: bool) -> bool | None:
        """An exchange that began on the tier was answered: by it, or by another that it went to.

        ``turn``: how many replies of the model's the task had before. Gives whether the tier fails
        too often there, if that has changed.
        """
        if turn < STRETCHES[0] or self.too_often >= 1:
            return None
        known = self._stretches.setdefault(tier, [_Stretch() for _ in STRETCHES])
        stretch = known[_place(turn)]
        before = stretch.failing
        stretch.note(moved_up, self.too_often)
        return stretch.failing if stretch.failing is not before else None

    def fails(self, tier: str, turn: int) -> bool:
        """Whether an exchange is likely enough to be moved up from the tier.

        Who is lost after three steps is so after seven, though seldom seen there.
        """
        known = self._stretches.get(tier)
        if known is None or turn < STRETCHES[0]:
            return False
        return any(stretch.failing for stretch in known[: _place(turn) + 1])

    def is_probe(self, tier: str, turn: int) -> bool:
        """Whether this exchange is to be tried on a tier that fails: what was so need not stay so.

        Each eighth of a stretch is, so that all of them get their share.
        """
        stretch = self._stretches[tier][_place(turn)]
        stretch.asked = (stretch.asked + 1) % PROBE_EVERY
        return not stretch.asked

    def forget(self, tier: str) -> None:
        """Another model is behind the tier."""
        self._stretches.pop(tier, None)


def _place(turn: int) -> int:
    return bisect_right(STRETCHES, turn) - 1


def _is_above(limit: float, moved_up: float, exchanges: float) -> bool:
    """Whether it is so beyond reasonable doubt."""
    if moved_up < _LEAST:
        return False
    share, z2 = moved_up / exchanges, _Z * _Z
    spread = _Z * math.sqrt((share * (1 - share) + z2 / (4 * exchanges)) / exchanges)
    return (share + z2 / (2 * exchanges) - spread) / (1 + z2 / exchanges) > limit
