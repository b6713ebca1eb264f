"""Intervals, against figures that the literature gives."""

from __future__ import annotations

import pytest

from benchmarks.intervals import difference, mcnemar, wilson


def test_wilson_as_newcombe_1998_tabulates_it() -> None:
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


def test_mcnemar_is_a_two_sided_binomial_test() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 0) == pytest.approx(2 / 32)
    assert mcnemar(1, 9) == pytest.approx(2 * 11 / 1024)
    assert mcnemar(4, 4) == 1.0


def test_a_difference_counts_only_pairs_that_differ() -> None:
    new = [True] * 8 + [False] * 2
    old = [True] * 5 + [False] * 3 + [True] + [False]
    found = difference(new, old)
    assert (found.gained, found.lost) == (3, 1)
    assert found.share == pytest.approx(0.2)
    assert found.low < 0 < found.high
    # The other way round it is the same with the other sign.
    back = difference(old, new)
    assert (back.low, back.high) == pytest.approx((-found.high, -found.low))
