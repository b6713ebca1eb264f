"""What one process holds in memory: the hour, and the bounds of all else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine import session_id
from mlx_stack_proxy.state import ledger
from mlx_stack_proxy.state.ledger import Ledger
from mlx_stack_proxy.state.rolling_hour import RollingHour
from mlx_stack_proxy.state.store import Change, Limit, Sizes

NOW = 1_780_000_020.0
STEPS = st.lists(st.tuples(st.floats(0, 400), st.integers(0, 9)), max_size=60)


@given(STEPS)
def test_the_hour_is_exact_to_the_minute_and_bounded(steps: list[tuple[float, int]]) -> None:
    hour = RollingHour()
    added: list[tuple[int, int]] = []
    now = NOW
    for wait, tokens in steps:
        now += wait
        hour.add(tokens, now)
        added.append((int(now // 60), tokens))
        minute = int(now // 60)
        assert hour.total(now) == sum(t for m, t in added if m > minute - 60)
        assert len(hour.buckets()) <= 60


@given(STEPS, st.integers(1, 60), st.integers(1, 60))
def test_the_wait_for_room_is_right(steps: list[tuple[float, int]], tokens: int, most: int) -> None:
    hour = RollingHour()
    now = NOW
    for wait, used in steps:
        now += wait
        hour.add(used, now)
    wait = hour.room_in(tokens, most, now)
    if hour.total(now) + tokens <= most:
        return  # there is room already, and nobody asks
    if tokens <= most:
        assert hour.total(now + wait) + tokens <= most
        assert wait < 1 or hour_at(steps, now + wait - 1) + tokens > most
    else:
        assert wait == 3600


def hour_at(steps: list[tuple[float, int]], then: float) -> int:
    now, found = NOW, 0
    for wait, used in steps:
        now += wait
        found += used if int(now // 60) > int(then // 60) - 60 else 0
    return found


def make_ledger(**changes: Any) -> Ledger:
    return Ledger(replace(Sizes(2, 1.0, 1.0, 1), **changes))


def test_counts_of_sessions_that_never_commit_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "SPARE_PURSES", 3)
    kept = make_ledger()
    for number in range(20):
        kept.settle("t", {Limit(f"session:{number}", None, rolling=False): 1}, NOW)
        kept.settle("t", {Limit("key:k", None, rolling=False): 1}, NOW)
    assert len(kept.purses) == 5
    assert kept.purses["key:k"].used == {"key:k": 20}  # what is in use stays


def test_of_many_budgets_those_go_that_are_used_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "SPARE_PURSES", 8)
    kept = make_ledger()
    a, b = (session_id.digest(key, "used up") for key in ("key-a", "key-b"))
    for session in (a, b):
        kept.settle("t", {Limit(f"session:{session}", 20, rolling=False): 20}, NOW)
    for number in range(50):
        session = session_id.digest("key-b", str(number))
        kept.settle("t", {Limit(f"session:{session}", 20, rolling=False): 19}, NOW)
    assert len(kept.purses) == 10
    assert {f"session:{a}", f"session:{b}"} <= set(kept.purses)


def test_reservations_leave_nothing_behind() -> None:
    kept = make_ledger()
    limits = [Limit("hour", 1000, True), Limit("session:a", 1000, False)]
    for number in range(10):
        kept.reserve(f"t{number}", limits, 10, NOW, NOW + 60)
    for number in range(0, 10, 2):
        kept.settle(f"t{number}", dict.fromkeys(limits, 1), NOW)
    kept.reserve("last", limits, 0, NOW + 60, NOW + 61)
    kept.settle("last", dict.fromkeys(limits, 0), NOW + 60)
    assert (kept._tickets, kept._reserved) == ({}, {})


def test_idle_sessions_do_not_stay() -> None:
    kept = make_ledger(max_sessions=10, session_ttl=60.0)
    for number in range(5):
        kept.write(Change(str(number), turns=1), NOW + number * 40)
    assert kept.count_sessions(NOW) == 2
