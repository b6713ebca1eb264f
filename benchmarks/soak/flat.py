"""Whether a figure stays as it is: the last third of a run beside the first, after the warm-up."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks import pages

TOLERANCE = 0.05
WARM_UP = 0.25  # of the run
LEAST = 9  # samples after the warm-up: three in each third

# (seconds since the beginning, value)
Samples = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Course:
    """How a figure went after the warm-up.

    ``first``, ``last``: the medians of the first and the last third. ``an_hour``: the median slope
    of all pairs of samples (Theil-Sen), which a few odd ones don't move. ``highest``: of all.
    """

    first: float
    last: float
    an_hour: float
    highest: float
    limit: float | None = None  # of what is written until it is full, and then thinned out

    @property
    def grown(self) -> float:
        """The share by which the last third is above the first; below it, negative."""
        if self.last == self.first:
            return 0.0
        return self.last / self.first - 1 if self.first else float("inf")

    @property
    def is_flat(self) -> bool:
        if self.limit is not None:
            return self.highest <= self.limit
        return self.grown <= TOLERANCE

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return "flat" if self.is_flat else "NOT FLAT"
        return f"{'within' if self.is_flat else 'ABOVE'} its limit, {self.limit:,.0f}"


def course(samples: Samples, warm_up: float, limit: float | None = None) -> Course:
    """``warm_up``: seconds that don't count. Raises ValueError where too few samples are left."""
    counted = [sample for sample in samples if sample[0] >= warm_up]
    if len(counted) < LEAST:
        raise ValueError(f"{len(counted)} samples after the warm-up, and {LEAST} are needed")
    values = [value for _, value in counted]
    slopes = [(b - a) / (at - t) for (t, a), (at, b) in itertools.combinations(counted, 2)]
    first, last = values[: len(values) // 3], values[-(len(values) // 3) :]
    an_hour = statistics.median(slopes) * 3600
    middles = (statistics.median(first), statistics.median(last))
    return Course(*middles, an_hour, max(values), limit)


def table(courses: Mapping[str, Course]) -> str:
    head = ["", "first third", "last third", "change", "trend an hour", "highest", ""]
    rows = []
    for name, found in courses.items():
        values = (found.first, found.last, found.an_hour, found.highest)
        first, last, an_hour, highest = (f"{value:,.1f}" for value in values)
        rows.append([name, first, last, f"{found.grown:+.1%}", an_hour, highest, found.verdict])
    return pages.table(head, rows)
