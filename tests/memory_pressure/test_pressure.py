"""From readings to a level: thresholds, and a course that does not flap."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.memory_pressure.pressure import NO_PRESSURE, Gauge, Level, Reading, assess
from mlx_stack_proxy.settings import MemoryPressureSettings

N, W, C = Level.NORMAL, Level.WARNING, Level.CRITICAL
MIB = 1024 * 1024


def gauge(**settings: Any) -> Gauge:
    return Gauge(MemoryPressureSettings(**settings))


@pytest.mark.parametrize(
    ("reading", "growth", "level", "cause"),
    [
        (Reading(), 0, N, ""),
        (Reading(level=N), 0, N, ""),
        (Reading(level=W), 0, W, "system"),
        (Reading(level=C), 0, C, "system"),
        (Reading(some=9.99, full=9.99), 0, N, ""),
        (Reading(some=10.0, full=0.0), 0, W, "stalls"),
        (Reading(some=99.0, full=29.99), 0, W, "stalls"),
        (Reading(some=50.0, full=30.0), 0, C, "stalls"),
        (Reading(limit_used=0.899), 0, N, ""),
        (Reading(limit_used=0.9), 0, W, "limit"),
        (Reading(limit_used=0.97), 0, C, "limit"),
        (Reading(), 32 * MIB - 1, N, ""),
        (Reading(), 32 * MIB, W, "swap"),
        (Reading(), 256 * MIB, C, "swap"),
        # Swap that grows fast is pressure even while the level reads normal.
        (Reading(level=N), 64 * MIB, W, "swap"),
        # The worst counts, and of equals the first.
        (Reading(level=W, some=50.0, full=40.0), 64 * MIB, C, "stalls"),
        (Reading(level=W, some=50.0), 64 * MIB, W, "system"),
    ],
)
def test_what_a_reading_means(reading: Reading, growth: float, level: Level, cause: str) -> None:
    assert assess(reading, growth, 32 * MIB) == (level, cause)


def test_the_growth_of_swap_that_warns_is_a_setting() -> None:
    assert assess(Reading(), 10, 10)[0] is W
    assert assess(Reading(), 80, 10)[0] is C


# A course: at these seconds the source says these levels; the gauge shows those.
COURSES: dict[str, list[tuple[float, Level | None, Level]]] = {
    "it rises at once, also by two steps": [(0, N, N), (5, C, C)],
    "it falls by one step after each hold": [
        (0, C, C),
        (5, N, C),
        (29, N, C),
        (30, N, W),
        (59, N, W),
        (60, N, N),
    ],
    "from a warning it falls after one hold": [(0, W, W), (29, N, W), (30, N, N)],
    "a warning after it was critical stays": [(0, C, C), (30, W, W), (90, W, W), (119, N, W)],
    "a source that flaps is as bad as its worst": [
        (0, C, C),
        (5, N, C),
        (10, C, C),
        (15, N, C),
        (20, C, C),
        (45, N, C),
        (50, N, W),
    ],
    "one that flaps between normal and warning": [
        (0, W, W),
        (25, N, W),
        (29, W, W),
        (58, N, W),
        (59, N, N),
    ],
    "on its way down it may rise again": [(0, C, C), (30, N, W), (35, C, C), (64, N, C)],
    "no reading that counts is as good as normal": [
        (0, C, C),
        (29, None, C),
        (30, None, W),
        (60, None, N),
    ],
}


@pytest.mark.parametrize("name", COURSES)
def test_courses(name: str) -> None:
    one = gauge()
    for second, said, shown in COURSES[name]:
        reading = None if said is None else Reading(level=said)
        assert one.take(reading, second).level is shown, f"at {second} s"


def test_how_long_it_lasts() -> None:
    one = gauge(sustained_seconds=60)
    assert not one.take(Reading(level=W), 100).sustained
    assert one.take(Reading(level=C), 130).since == 100, "a worse level begins nothing anew"
    assert not one.take(Reading(level=W), 159.9).sustained
    assert one.take(Reading(level=W), 160).sustained
    one.take(Reading(level=N), 190)
    assert one.take(Reading(level=N), 220) == NO_PRESSURE
    assert not one.take(Reading(level=W), 300).sustained, "it begins anew"


def test_the_cause_is_what_it_rose_for() -> None:
    one = gauge()
    assert one.take(Reading(some=20), 0).cause == "stalls"
    assert one.take(Reading(level=C), 5).cause == "system"
    assert one.take(Reading(some=20), 10).cause == "system"
    assert one.take(Reading(), 40).cause == "system", "still, on its way down"
    assert one.raw == (N, "")


def swap(used: int, **more: int) -> Reading:
    return Reading(swap={"used": used, **more})


def test_swap_counts_by_how_fast_it_grows() -> None:
    one = gauge()

    def level(used: int, now: float) -> Level:
        one.take(swap(used * MIB), now)
        return one.raw[0]

    assert level(9000, 0) is N, "what is there already says nothing"
    assert level(9100, 5) is N
    assert level(9260, 10) is W
    assert level(9260, 15) is N
    assert level(1, 20) is N, "it shrinks"
    assert level(1281, 25) is C


def test_the_fastest_counter_of_the_swap_counts() -> None:
    one = gauge()
    one.take(swap(100 * MIB, out=0), 0)
    # As much comes back as goes out: the machine thrashes, and what is used stays the same.
    assert one.take(swap(100 * MIB, out=300 * MIB), 5).level is W


def test_a_counter_that_is_new_says_nothing_yet() -> None:
    one = gauge()
    one.take(Reading(), 0)
    assert one.take(swap(9000 * MIB), 5).level is N
    assert one.take(Reading(swap={"out": 9000 * MIB}), 10).level is N


def test_two_readings_of_one_moment_say_nothing_of_speed() -> None:
    one = gauge()
    one.take(swap(0), 5)
    assert one.take(swap(9000 * MIB), 5).level is N


@given(
    st.lists(
        st.tuples(
            st.floats(0, 100),
            st.none() | st.builds(Reading, level=st.sampled_from(Level)),
        )
    )
)
def test_never_below_the_reading_and_never_two_steps_down(
    course: list[tuple[float, Reading | None]],
) -> None:
    one = gauge()
    now = 0.0
    for later, reading in course:
        now += later
        before = one.pressure
        after = one.take(reading, now)
        assert after.level >= (reading.level if reading and reading.level else N)
        assert after.level >= before.level - 1
        assert (after.since is None) == (after.level is N) == (after.cause == "")
