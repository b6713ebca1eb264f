"""What counts as flat: tried with series whose course is known."""

from __future__ import annotations

import pytest

from benchmarks.soak.flat import Samples, course, table
from tests.benchmarks.tables import narrow

WARM_UP = 300.0


def series(*values: float) -> Samples:
    """One sample a minute."""
    return [(60.0 * number, value) for number, value in enumerate(values)]


STEADY = [100.0] * 30


@pytest.mark.parametrize(
    ("values", "is_flat"),
    [
        (STEADY, True),
        ([*range(5), *STEADY], True),  # the warm-up does not count
        ([100.0] * 20 + [104.9] * 10, True),
        ([100.0] * 20 + [105.1] * 10, False),
        ([100.0] * 20 + [80.0] * 10, True),
        ([6.0] * 20 + [7.0] * 10, False),
        ([0.0] * 20 + [1.0] * 10, False),
        ([0.0] * 30, True),
    ],
)
def test_what_stays_within_5_percent_is_flat(values: list[float], is_flat: bool) -> None:
    assert course(series(*values), WARM_UP).is_flat is is_flat


def test_a_slow_growth_is_not() -> None:
    found = course(series(*(100 + 0.5 * minute for minute in range(30))), WARM_UP)
    assert not found.is_flat
    assert found.an_hour == pytest.approx(30)
    assert (found.first, found.last) == (104.25, 112.75)


def test_noise_and_odd_samples_move_nothing() -> None:
    noisy = [100 + 3 * (-1) ** minute for minute in range(36)]
    noisy[10] = noisy[30] = 500
    found = course(series(*noisy), WARM_UP)
    assert found.is_flat
    assert found.highest == 500
    assert abs(found.an_hour) < 1


def test_what_is_thinned_out_at_its_limit_may_go_up_to_it() -> None:
    saw = [1000.0 + 100 * (minute % 10) for minute in range(30)]
    assert course(series(*saw), WARM_UP, limit=2000).verdict == "within its limit, 2,000"
    assert course(series(*saw), WARM_UP, limit=1500).verdict == "ABOVE its limit, 1,500"


def test_too_few_samples_say_nothing() -> None:
    with pytest.raises(ValueError, match="8 samples after the warm-up, and 9 are needed"):
        course(series(*[1.0] * 13), WARM_UP)


def test_the_table_says_it() -> None:
    courses = {
        "memory (MB)": course(series(*STEADY), WARM_UP),
        "tasks": course(series(*range(30)), WARM_UP),
    }
    _head, _line, memory, tasks = narrow(table(courses)).splitlines()
    assert memory == "| memory (MB) | 100.0 | 100.0 | +0.0% | 0.0 | 100.0 | flat |"
    assert tasks.endswith("| NOT FLAT |")
