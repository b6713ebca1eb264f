import random

import pytest

from benchmarks.cost import fit

XS = (25, 50, 100, 200, 400, 800)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5, 2.0])
def test_the_exponent_of_what_grows_is_found_behind_a_constant_part(exponent: float) -> None:
    found = fit.power(XS, [3.0 + 0.02 * x**exponent for x in XS])

    assert found.exponent == pytest.approx(exponent, abs=0.02)
    assert found.base == pytest.approx(3.0, rel=0.05)


def test_linear_and_quadratic_growth_are_told_apart() -> None:
    rng = random.Random(3)
    linear = fit.power(XS, [(5 + 0.01 * x) * rng.gauss(1, 0.01) for x in XS])
    quadratic = fit.power(XS, [(5 + 0.00005 * x * x) * rng.gauss(1, 0.01) for x in XS])

    assert linear.exponent < 1.3 < quadratic.exponent


def test_a_curve_within_the_noise_is_flat() -> None:
    found = fit.power((100, 1_000, 10_000), [2.0, 2.1, 2.05])

    assert (found.exponent, found.factor) == (0.0, 0.0)
    assert found(50_000) == pytest.approx(2.05, abs=0.05)


def test_no_base_below_nothing() -> None:
    found = fit.power((1, 2, 4, 8), [1.0, 4.1, 15.9, 64.0])

    assert found.base == 0.0
    assert found.exponent == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize(
    ("xs", "ys"), [((1, 2), (1, 2)), ((0, 1, 2), (1, 2, 3)), ((1, 2, 3), (1, 0, 3))]
)
def test_what_can_not_be_fitted_is_refused(xs: tuple[int, ...], ys: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="three points"):
        fit.power(xs, ys)
