"""The hour, and the bounds of all else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine import session_id
from mlx_stack_proxy.state import database
from mlx_stack_proxy.state.rolling_hour import RollingHour
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Change, Limit, Sizes
from tests.state.spending import NOW, spend
from tests.support.storing import settle

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


async def open_memory(**changes: Any) -> SqliteStore:
    store = SqliteStore(None, replace(Sizes(2, 1.0, 1.0, 1), **changes), lambda: NOW)
    await store.open()
    return store


def accounts(store: SqliteStore) -> dict[str, str]:
    rows = store._known().connection.execute("SELECT purse, used FROM purses")
    return dict(rows.fetchall())


async def test_counts_of_sessions_that_never_commit_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database, "SPARE_ACCOUNTS", 3)
    store = await open_memory()
    for number in range(20):
        await spend(store, Limit(f"session:{number}", None, rolling=False), 1, NOW + number / 100)
        await spend(store, Limit("key:k", None, rolling=False), 1, NOW + number / 100)
    kept = accounts(store)
    assert len(kept) == 5
    assert kept["key:k"] == '{"":20}'  # what is in use stays
    await store.close()


async def test_of_many_budgets_those_go_that_are_used_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database, "SPARE_ACCOUNTS", 8)
    store = await open_memory()
    a, b = (session_id.digest(key, "used up") for key in ("key-a", "key-b"))
    for session in (a, b):
        await spend(store, Limit(f"session:{session}", 20, rolling=False), 20, NOW)
    for number in range(50):
        session = session_id.digest("key-b", str(number))
        await spend(store, Limit(f"session:{session}", 20, rolling=False), 19, NOW + number / 100)
    kept = accounts(store)
    assert len(kept) == 10
    assert {f"session:{a}", f"session:{b}"} <= set(kept)
    await store.close()


async def test_of_sessions_of_many_keys_the_oldest_goes() -> None:
    store = await open_memory(max_sessions=3, session_ttl=60.0)
    names = [session_id.digest(f"key-{number}", "one") for number in range(5)]
    for number, name in enumerate(names):
        await store.write(Change(name, turns=1), NOW + number)
    assert [s.session for s in await store.sessions(NOW + 9)] == names[:1:-1]
    await store.close()


async def test_reservations_leave_nothing_behind() -> None:
    store = await open_memory()
    limits = [Limit("hour", 1000, True), Limit("session:a", 1000, False)]
    for number in range(10):
        await store.reserve(f"t{number}", limits, 10, NOW, NOW + 60)
    for number in range(0, 10, 2):
        await settle(store, f"t{number}", dict.fromkeys(limits, 1), NOW)
    await store.reserve("last", limits, 0, NOW + 60, NOW + 61)
    await settle(store, "last", dict.fromkeys(limits, 0), NOW + 60)
    assert (store._reservations._tickets, store._reservations._reserved) == ({}, {})
    await store.close()
