"""The hour, and the bounds of all else."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mlx_stack_proxy.engine import session_id
from mlx_stack_proxy.state import sqlite_file
from mlx_stack_proxy.state.database import Database
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Change, Limit, Settlement, Sizes
from tests.state.spending import NOW, hour_limit, spend
from tests.support.storing import settle

STEPS = st.lists(st.tuples(st.floats(0, 400), st.integers(0, 9)), max_size=60)


class Hour:
    """A rolling hour in a database of its own, and what was counted in it, by its minute."""

    def __init__(self) -> None:
        self.database = Database(sqlite_file.in_memory(), Sizes(2, 1.0, 1.0, 1))
        self.added: list[tuple[int, int]] = []

    def add(self, tokens: int, now: float) -> None:
        self.database.write(Change(settlement=Settlement("", {hour_limit(None): tokens})), now)
        self.added.append((int(now // 60), tokens))

    def total(self, now: float) -> int:
        return self.database.used([hour_limit(None)], now)["hour"]

    def rows(self) -> int:
        found = self.database.connection.execute("SELECT count(*) FROM hours").fetchone()
        return int(found[0])


@given(STEPS)
def test_the_hour_is_exact_to_the_minute_and_bounded(steps: list[tuple[float, int]]) -> None:
    hour, now = Hour(), NOW
    for wait, tokens in steps:
        now += wait
        hour.add(tokens, now)
        assert hour.total(now) == sum(t for m, t in hour.added if m > int(now // 60) - 60)
        assert hour.rows() <= 60


@given(STEPS, st.integers(1, 60), st.integers(1, 60))
def test_the_wait_for_room_is_right(steps: list[tuple[float, int]], tokens: int, most: int) -> None:
    hour, now = Hour(), NOW
    for wait, used in steps:
        now += wait
        hour.add(used, now)
    wait = hour.database.resets_in(hour_limit(most), tokens, now)
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


def tokens(store: SqliteStore) -> dict[str, str]:
    assert store._db is not None
    return dict(store._db.connection.execute("SELECT session, used FROM sessions").fetchall())


async def test_tokens_of_sessions_that_never_commit_are_bounded() -> None:
    store = await open_memory(max_sessions=5)
    for number in range(20):
        await spend(store, Limit(f"session:{number}", None, rolling=False), 1, NOW + number / 100)
        await spend(store, Limit("session:parent", None, rolling=False), 1, NOW + number / 100)
    await store.keep_house()
    kept = tokens(store)
    assert len(kept) == 5
    assert kept["parent"] == '{"":20}'  # what is in use stays
    await store.close()


async def test_of_many_budgets_those_go_that_are_used_least() -> None:
    store = await open_memory(max_sessions=10)
    a, b = (session_id.digest(key, "used up") for key in ("key-a", "key-b"))
    for session in (a, b):
        await spend(store, Limit(f"session:{session}", 20, rolling=False), 20, NOW)
    for number in range(50):
        session = session_id.digest("key-b", str(number))
        await spend(store, Limit(f"session:{session}", 20, rolling=False), 19, NOW + number / 100)
    await store.keep_house()
    kept = tokens(store)
    assert len(kept) == 10
    assert {a, b} <= set(kept)
    await store.close()


async def test_of_sessions_of_many_keys_the_oldest_goes() -> None:
    store = await open_memory(max_sessions=3, session_ttl=60.0)
    names = [session_id.digest(f"key-{number}", "one") for number in range(5)]
    for number, name in enumerate(names):
        await store.write(Change(name, turns=1), NOW + number)
    await store.keep_house()
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
    assert store._tickets == {}
    await store.close()
