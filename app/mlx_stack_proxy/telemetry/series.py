"""Counters and histograms as plain numbers, made into the library's families where they are read.

prometheus_client's own take a lock and some ten calls for each count, all of them together 4 % of a
request; what they become when a scraper asks is the library's own, by its interface for collectors
of one's own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from threading import Lock
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

T = TypeVar("T")
Labels = tuple[str, ...]  # values, in the order of the names


class Counter(Collector):
    """``labels``: their names. One without any is there from the start, at 0."""

    def __init__(self, name: str, text: str, labels: Labels) -> None:
        self._name, self._text, self.labels = name, text, labels
        self._lock = Lock()  # a large body is read in another thread, and may bring a fault there
        self.values: dict[Labels, float] = {} if labels else {(): 0.0}

    def inc(self, *labels: str, by: float = 1) -> None:
        with self._lock:
            before = self.values.get(labels)
            if before is None:
                before = _checked(labels, self.labels, 0.0)
            self.values[labels] = before + by

    def collect(self) -> list[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._text, labels=self.labels)
        for labels, value in list(self.values.items()):
            family.add_metric(labels, value)
        return [family]


@dataclass(slots=True)
class _Observed:
    """``counts``: how many values were in each bucket alone, the last one without a bound."""

    counts: list[int]
    sum: float = 0.0


class Histogram(Collector):
    """``labels``: their names. ``bounds``: of the buckets, ascending, without the infinite one.

    One event loop's alone.
    """

    def __init__(self, name: str, text: str, labels: Labels, bounds: Sequence[float]) -> None:
        self._name, self._text, self.labels = name, text, labels
        self._bounds = tuple(bounds)
        self._words = [_word(bound) for bound in (*bounds, float("inf"))]
        self._observed: dict[Labels, _Observed] = {} if labels else {(): self._new()}

    def _new(self) -> _Observed:
        return _Observed([0] * len(self._words))

    def observe(self, value: float, *labels: str) -> None:
        found = self._observed.get(labels)
        if found is None:
            found = self._observed[labels] = _checked(labels, self.labels, self._new())
        found.counts[bisect_left(self._bounds, value)] += 1  # a bound belongs to its bucket
        found.sum += value

    def collect(self) -> list[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._text, labels=self.labels)
        for labels, found in list(self._observed.items()):
            buckets = list(zip(self._words, accumulate(found.counts), strict=True))
            family.add_metric(labels, buckets, found.sum)
        return [family]


def _checked(labels: Labels, names: Labels, new: T) -> T:
    """``new``, for labels that are as many as their names. Raises ValueError."""
    if len(labels) != len(names):
        raise ValueError(f"labels {labels} for {names}")
    return new


def _word(bound: float) -> str:
    """As the library writes it."""
    word: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return word
