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

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))


class Samples:
    """Values by figure, server and round: what belongs to one round was measured side by side."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, dict[int, float]]] = {}
        self._pools: dict[str, dict[str, dict[int, list[float]]]] = {}

    def add(self, turn: int, server: str, figure: str, value: float) -> None:
        self._values.setdefault(figure, {}).setdefault(server, {})[turn] = value

    def add_pool(self, turn: int, server: str, figure: str, values: Sequence[float]) -> None:
        """Many values of one round, of which percentiles are to be made."""
        self._pools.setdefault(figure, {}).setdefault(server, {})[turn] = list(values)

    def has(self, server: str) -> bool:
        """Whether anything was measured of it."""
        return any(server in servers for servers in self._values.values())

    def by_round(self, server: str, figure: str) -> dict[int, float]:
        return self._values.get(figure, {}).get(server, {})

    def values(self, server: str, figure: str) -> list[float]:
        return list(self.by_round(server, figure).values())

    def spread(self, server: str, figure: str) -> Spread | None:
        values = self.values(server, figure)
        return Spread.of(values) if values else None

    def ratios(self, server: str, yardstick: str, figure: str) -> list[float]:
        """Round by round, so that noise common to a round falls out."""
        mine, theirs = self.by_round(server, figure), self.by_round(yardstick, figure)
        return [mine[turn] / theirs[turn] for turn in mine if theirs.get(turn, 0) > 0]

    def differences(self, server: str, figure: str, base: str) -> list[float]:
        """A figure less another of the same server, round by round."""
        more, less = self.by_round(server, figure), self.by_round(server, base)
        return [more[turn] - less[turn] for turn in more if turn in less]

    def added(self, server: str, base: str, figure: str, part: float) -> list[float]:
        """A percentile of one server less that of another, round by round."""
        pools = self._pools.get(figure, {})
        mine, theirs = pools.get(server, {}), pools.get(base, {})
        return [
            percentile(mine[turn], part) - percentile(theirs[turn], part)
            for turn in mine
            if mine[turn] and theirs.get(turn)
        ]

    def pooled(self, server: str, figure: str, part: float) -> float | None:
        """A percentile of the values of all rounds together."""
        rounds = self._pools.get(figure, {}).get(server, {})
        values = [value for one in rounds.values() for value in one]
        return percentile(values, part) if values else None

    def as_json(self) -> dict[str, object]:
        return {"figures": self._values, "pools": self._pools}


def percentile(values: Sequence[float], part: float) -> float:
    """The value that `part` (0 to 1) of them don't exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * part) - 1)]
