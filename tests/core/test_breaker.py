"""The breaker: when a tier is taken out, tried again, and back."""

from __future__ import annotations

import pytest

from app.core.breaker import MAX_COOLDOWN_SECONDS, Breakers, BreakerState
from app.settings import DegradeSettings

RULES = DegradeSettings(failures=3, cooldown_seconds=30)


@pytest.fixture
def breakers() -> Breakers:
    return Breakers(RULES)


def broken(breakers: Breakers, now: float = 100.0) -> Breakers:
    for _ in range(3):
        breakers.failed("fast", now)
    return breakers


def test_failures_in_a_row_take_a_tier_out(breakers: Breakers) -> None:
    assert [breakers.failed("fast", 100.0) for _ in range(3)] == [False, False, True]
    assert breakers.passed_over(100.0) == {"fast": 130.0}
    assert breakers["standard"] == BreakerState()


def test_a_success_between_them_starts_the_count_anew(breakers: Breakers) -> None:
    breakers.failed("fast", 1.0)
    breakers.failed("fast", 1.0)
    assert not breakers.succeeded("fast")
    assert [breakers.failed("fast", 1.0) for _ in range(3)] == [False, False, True]


def test_one_probe_at_a_time_while_others_go_past(breakers: Breakers) -> None:
    broken(breakers)
    assert not breakers.passed_over(130.0)
    assert breakers.begin("fast")
    assert breakers.passed_over(130.0) == {"fast": 130.0}
    assert not breakers.begin("fast")
    breakers.end_probe("fast")  # it came to nothing: its client left
    assert not breakers.passed_over(130.0)


def test_a_probe_that_succeeds_brings_it_back(breakers: Breakers) -> None:
    broken(breakers)
    assert breakers.begin("fast")
    assert breakers.succeeded("fast")
    breakers.end_probe("fast")
    assert breakers["fast"] == BreakerState()
    assert not breakers.begin("fast")  # whole: no call on it is a probe


def test_the_cool_down_doubles_up_to_ten_minutes(breakers: Breakers) -> None:
    now, seen = 100.0, []
    broken(breakers, now)
    for _ in range(7):
        seen.append(breakers["fast"].cooldown)
        now = breakers["fast"].degraded_until
        assert breakers.failed("fast", now)
    assert seen == [30, 60, 120, 240, 480, 600, 600] and seen[-1] == MAX_COOLDOWN_SECONDS


def test_failures_of_what_is_tried_for_want_of_another_prolong_nothing(breakers: Breakers) -> None:
    broken(breakers, 100.0)
    assert not breakers.failed("fast", 110.0)
    assert breakers["fast"].degraded_until == 130.0


def test_what_was_known_before_a_restart_counts(breakers: Breakers) -> None:
    breakers.restore({"fast": BreakerState(5, 130.0, 30.0)})
    assert breakers.passed_over(129.0) == {"fast": 130.0}
    assert breakers.begin("fast")
