"""What is the SQLite store's alone: restarts, and what becomes of its file."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.state import sqlite_file
from mlx_stack_proxy.state.hourly import HourKey, hour_of
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import (
    BreakerState,
    Change,
    EventQuery,
    Limit,
    SessionState,
    Settlement,
    Sticky,
)
from tests.state import reading
from tests.state.conftest import EVENTS_TTL, NOW, MakeStore
from tests.state.sqlite.files import HOUR, ONE_TURN, SESSION, count, fails, rows, size
from tests.support.storing import add_counts, add_events, commit, save_breaker, settle
from tests.support.waiting import until

# What the next process finds


async def test_the_next_process_knows_all(make_sqlite: MakeStore) -> None:
    sticky = {"auto": Sticky("standard", NOW + 300.5)}
    delta = Change(turns=2, tier="fast", sticky=sticky, reply="digest", replies_kept=9)
    event = {"time": NOW, "kind": "k", "session": "a", "detail": {"ü": [1, None]}}
    one = make_sqlite()
    await one.open()
    await commit(one, "b", ONE_TURN, NOW)
    await commit(one, "a", delta, NOW + 1)
    await settle(one, "t", dict.fromkeys([SESSION, HOUR], 70), NOW)
    await save_breaker(one, "fast", BreakerState(3, NOW + 30, 30.0))
    await add_events(one, [event, event])
    await add_counts(one, {HourKey(1, "codex", "fast"): {"requests": 4}})
    await one.close()

    two = make_sqlite()
    await two.open()
    state = SessionState(
        "a",
        used=70,
        turns=2,
        tier="fast",
        sticky=sticky,
        first_seen=NOW + 1,
        last_seen=NOW + 1,
        replies=("digest",),
    )
    assert await two.load("a", NOW + 2) == state
    assert [s.session for s in await two.sessions(NOW + 2)] == ["a", "b"]
    assert await two.breakers() == {"fast": BreakerState(3, NOW + 30, 30.0)}
    assert await two.events(EventQuery()) == [(1, event), (2, event)]
    assert await two.counts(0, 2) == {HourKey(1, "codex", "fast"): {"requests": 4}}
    found = await two.reserve("u", [HOUR], 0, NOW + 3539, NOW + 3540)
    assert found.used == {"hour": 70}  # type: ignore[union-attr]
    await add_events(two, [event])
    assert [number for number, _ in await two.events(EventQuery())] == [1, 2, 3]
    await two.close()


async def test_reservations_die_with_their_process(make_sqlite: MakeStore) -> None:
    one = make_sqlite()
    await one.open()
    await one.reserve("t", [SESSION], 1000, NOW, NOW + 600)
    await one.close()
    two = make_sqlite()
    await two.open()
    assert (await two.load("a", NOW)).reserved == 0
    await two.close()


async def test_what_comes_while_the_disk_is_busy_is_one_transaction(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = []
    end = store._end

    def counted(jobs: list[Any]) -> None:
        commits.append(len(jobs))
        end(jobs)

    monkeypatch.setattr(store, "_end", counted)
    limits = [[Limit(f"session:{number}", None, False)] for number in range(200)]
    await asyncio.gather(*(settle(store, "t", dict.fromkeys(limit, 1), NOW) for limit in limits))
    assert sum(commits) == 200
    assert len(commits) == 5, "the first alone, then as many as a transaction takes"


async def test_a_cancelled_request_harms_no_other(store: SqliteStore) -> None:
    one = asyncio.create_task(commit(store, "a", ONE_TURN, NOW))
    two = asyncio.create_task(commit(store, "b", ONE_TURN, NOW))
    await asyncio.sleep(0)
    one.cancel()
    await two
    assert (await store.load("a", NOW)).turns == 1


async def test_after_the_end_it_says_so(make_sqlite: MakeStore) -> None:
    store = make_sqlite()
    await store.open()
    await store.close()
    await fails(commit(store, "a", ONE_TURN, NOW), "is closed")


# Housekeeping


async def test_hours_and_counters_that_are_over_go(store: SqliteStore, path: Path) -> None:
    await settle(store, "t", {HOUR: 5}, NOW - 3700)
    hours = (hour_of(NOW - EVENTS_TTL) - 1, hour_of(NOW))
    await add_counts(store, {HourKey(hour, "a", "fast"): {"requests": 1} for hour in hours})
    await store.keep_house()
    assert (rows(path, "hours"), rows(path, "counts")) == (0, 1)


async def test_the_file_does_not_grow_with_use(store: SqliteStore, path: Path) -> None:
    """Wherever it is looked into, it holds what was acknowledged, in one row a name."""
    turns = {"idle": 7}
    await commit(store, "idle", Change(turns=7), NOW)
    for spent in range(60):
        name = "ab"[spent % 2]
        await commit(store, name, ONE_TURN, NOW, Settlement("t", dict.fromkeys([SESSION, HOUR], 1)))
        if not spent % 9:
            turns.pop(name, None)
            await store.delete(name)
        else:
            turns[name] = turns.get(name, 0) + 1
        assert dict(reading.rows(path, "session, turns", "sessions WHERE last_seen")) == turns
        minute = int(NOW // 60)
        assert reading.rows(path, "*", "hours") == [("hour", minute, spent + 1)]
    assert count(path, "sessions") == 3


async def test_the_log_is_short_again_after_a_burst(
    make_sqlite: MakeStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "LARGEST_LOG", 100_000)
    store = make_sqlite()
    assert isinstance(store, SqliteStore)
    await store.open()
    await add_events(store, [{"time": NOW, "kind": "k" * 1000, "session": ""}] * 500)
    log = Path(f"{path}-wal")
    assert size(log) > 400_000
    await store.keep_house()
    await commit(store, "a", ONE_TURN, NOW)
    assert size(log) <= 100_000
    await store.close()


async def test_a_file_that_was_deleted_is_written_anew(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(store, "a", ONE_TURN, NOW)
    for file in path.parent.iterdir():
        file.unlink()
    await fails(store.keep_house(), "deleted or replaced")
    await until(path.exists)
    await until(lambda: rows(path, "sessions") == 1)
    await until(lambda: store.health.sentence is None)


async def test_a_file_that_was_deleted_while_it_failed_is_written_anew(
    store: SqliteStore, path: Path
) -> None:
    await commit(store, "a", ONE_TURN, NOW)
    os.unlink(path)
    store._fail(sqlite3.OperationalError("disk I/O error"), [])
    await until(lambda: store.health.sentence is None)
    assert rows(path, "sessions") == 1


async def test_a_file_that_was_replaced_is_written_anew(
    store: SqliteStore, make_sqlite: MakeStore, path: Path
) -> None:
    """By a copy of before, as it is given back while the proxy runs."""
    await commit(store, "a", ONE_TURN, NOW)
    copy = path.with_name("copy.db")
    connection = sqlite3.connect(path)
    connection.execute("VACUUM INTO ?", (str(copy),))
    connection.close()
    await commit(store, "b", ONE_TURN, NOW)
    copy.rename(path)
    for beside in ("-wal", "-shm"):
        os.unlink(f"{path}{beside}")
    await fails(store.keep_house(), "deleted or replaced")
    await until(lambda: rows(path, "sessions") == 2)
    await until(lambda: store.health.sentence is None)
