"""How a cost grows: exponents fitted to measured points. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

STEP, LEAST, MOST = 0.01, 0.1, 3.0
FLAT = 0.1  # a curve whose highest point is no further above its lowest has no exponent to speak of


@dataclass(frozen=True)
class Fit:
    """cost = base + factor · x^exponent. A flat curve has the exponent 0 and the factor 0."""

    base: float
    factor: float
    exponent: float

    def __call__(self, x: float) -> float:
        return float(self.base + self.factor * x**self.exponent)


def power(xs: Sequence[float], ys: Sequence[float]) -> Fit:
    """The best such curve by relative error, with a base of 0 or more.

    A cost has a part that is always there and one that grows; the exponent is that of what grows. A
    plain log-log slope would take the constant part for slow growth.
    """
    if len(xs) < 3 or len(xs) != len(ys) or min(xs) <= 0 or min(ys) <= 0:
        raise ValueError("a fit needs three points or more, all of them positive")
    flat = Fit(_relative_mean(ys), 0.0, 0.0)
    if max(ys) - min(ys) <= FLAT * min(ys):
        return flat
    best, least = flat, math.inf
    for number in range(round((MOST - LEAST) / STEP) + 1):
        exponent = LEAST + number * STEP
        fit = _straight([x**exponent for x in xs], ys, exponent)
        error = sum((fit(x) / y - 1) ** 2 for x, y in zip(xs, ys, strict=True))
        if fit.factor > 0 and error < least:
            best, least = fit, error
    return best


def _relative_mean(ys: Sequence[float]) -> float:
    """The constant with the least relative error."""
    return sum(1 / y for y in ys) / sum(1 / y**2 for y in ys)


def _straight(us: Sequence[float], ys: Sequence[float], exponent: float) -> Fit:
    """Least squares of base + factor · u, each point weighed by its own size."""
    weights = [1 / y**2 for y in ys]
    total = sum(weights)
    mean_u = sum(w * u for w, u in zip(weights, us, strict=True)) / total
    mean_y = sum(w * y for w, y in zip(weights, ys, strict=True)) / total
    terms = list(zip(weights, us, ys, strict=True))
    below = sum(w * (u - mean_u) ** 2 for w, u, _ in terms)
    factor = sum(w * (u - mean_u) * (y - mean_y) for w, u, y in terms) / below
    base = mean_y - factor * mean_u
    if base < 0:
        through_zero = sum(w * u * y for w, u, y in terms) / sum(w * u * u for w, u, _ in terms)
        return Fit(0.0, through_zero, exponent)
    return Fit(base, factor, exponent)
