"""Intervals for shares, and for differences of pairs. 95 % unless said otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt

Z = 1.959964


def wilson(right: int, count: int, z: float = Z) -> tuple[float, float]:
    """Wilson's interval of a share."""
    if not count:
        return 0.0, 1.0
    share = right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * sqrt(share * (1 - share) / count + z * z / (4 * count**2)) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Difference:
    """Of two shares over the same tasks. ``gained``, ``lost``: tasks that only one got right.

    ``p``: McNemar's exact test, two-sided.
    """

    share: float
    low: float
    high: float
    gained: int
    lost: int
    p: float


def difference(new: Sequence[bool], old: Sequence[bool], z: float = Z) -> Difference:
    """Agresti and Min's interval for pairs: Wald's after half an observation more in each cell."""
    count = len(new)
    gained = sum(n and not o for n, o in zip(new, old, strict=True))
    lost = sum(o and not n for n, o in zip(new, old, strict=True))
    up, down = (gained + 0.5) / (count + 2), (lost + 0.5) / (count + 2)
    half = z * sqrt((up + down - (up - down) ** 2) / (count + 2))
    share = (gained - lost) / count if count else 0.0
    return Difference(
        share, up - down - half, up - down + half, gained, lost, mcnemar(gained, lost)
    )


def mcnemar(gained: int, lost: int) -> float:
    """The chance of so uneven a split of the tasks that differ, were both equally good."""
    differ = gained + lost
    tail: float = sum(comb(differ, k) for k in range(min(gained, lost) + 1)) / 2**differ
    return min(1.0, 2 * tail)
