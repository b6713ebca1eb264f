"""Every round's value of every figure of every server, and what is made of them. No I/O."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The middle of some values and their range."""

    middle: float
    low: float
    high: float
    count: int


def spread_of(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values), len(values))


class Samples:
    """Values by figure, server and round: what belongs to one round was measured side by side.

    ``pools``: many values of one round, of which percentiles are made.
    """

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, dict[int, float]]] = {}
        self.pools: dict[str, dict[str, dict[int, list[float]]]] = {}

    def add(self, turn: int, server: str, figure: str, value: float) -> None:
        self.figures.setdefault(figure, {}).setdefault(server, {})[turn] = value

    def add_pool(self, turn: int, server: str, figure: str, values: Sequence[float]) -> None:
        self.pools.setdefault(figure, {}).setdefault(server, {})[turn] = list(values)

    def has(self, server: str) -> bool:
        """Whether anything was measured of it."""
        return any(server in servers for servers in self.figures.values())

    def by_round(self, server: str, figure: str) -> dict[int, float]:
        return self.figures.get(figure, {}).get(server, {})

    def values(self, server: str, figure: str) -> list[float]:
        return list(self.by_round(server, figure).values())

    def spread(self, server: str, figure: str) -> Spread | None:
        values = self.values(server, figure)
        return spread_of(values) if values else None

    def ratios(self, server: str, yardstick: str, figure: str, beside: str = "") -> list[float]:
        """Round by round, so that noise common to a round falls out.

        ``beside``: the figure of the yardstick, where it is another.
        """
        mine, theirs = self.by_round(server, figure), self.by_round(yardstick, beside or figure)
        return [mine[turn] / theirs[turn] for turn in mine if theirs.get(turn, 0) > 0]

    def differences(self, server: str, figure: str, base: str) -> list[float]:
        """A figure less another of the same server, round by round."""
        more, less = self.by_round(server, figure), self.by_round(server, base)
        return [more[turn] - less[turn] for turn in more if turn in less]

    def added(self, server: str, base: str, figure: str, part: float) -> list[float]:
        """A percentile of one server less that of another, round by round."""
        mine, theirs = self._pool(server, figure), self._pool(base, figure)
        return [
            percentile(mine[turn], part) - percentile(theirs[turn], part)
            for turn in mine
            if mine[turn] and theirs.get(turn)
        ]

    def pooled(self, server: str, figure: str, part: float) -> float | None:
        """A percentile of the values of all rounds together."""
        values = [value for one in self._pool(server, figure).values() for value in one]
        return percentile(values, part) if values else None

    def _pool(self, server: str, figure: str) -> dict[int, list[float]]:
        return self.pools.get(figure, {}).get(server, {})


def percentile(values: Sequence[float], part: float) -> float:
    """The value that `part` (0 to 1) of them don't exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * part) - 1)]
