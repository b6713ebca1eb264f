"""Files of the SQLite store that fail: taken, corrupt, old, full, locked, hanging."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from mlx_stack_proxy import log
from mlx_stack_proxy.settings import ObservabilitySettings
from mlx_stack_proxy.state import sqlite
from mlx_stack_proxy.state.hourly import HourKey
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import (
    BreakerState,
    Change,
    EventQuery,
    Limit,
    Reserved,
    Sticky,
    StoreError,
)
from tests.state import reading
from tests.state.conftest import NOW, MakeStore
from tests.state.sqlite.files import HOUR, ONE_TURN, SESSION, count, fails, given, rows, size
from tests.support.storing import add_events, commit, settle
from tests.support.waiting import until


async def test_a_second_process_is_told_who_has_the_file(
    store: SqliteStore, make_sqlite: MakeStore, path: Path
) -> None:
    await settle(store, "t", dict.fromkeys([HOUR], 70), NOW)
    second = make_sqlite()
    assert isinstance(second, SqliteStore)
    await second.open()
    assert second.health.sentence is not None
    assert f"{path} is in use by another process (pid {os.getpid()})" in second.health.sentence
    for call in (
        second.load("a", NOW),
        settle(second, "t", dict.fromkeys([HOUR], 1), NOW),
        second.breakers(),
    ):
        await fails(call, "in use by another process")
    # It takes over where the first one ends.
    await store.close()
    await until(lambda: second.health.sentence is None)
    # What it was to count meanwhile is written.
    await until(lambda: not second._jobs and second._in_flight is None)
    found = await second.reserve("u", [HOUR], 0, NOW, NOW)
    assert found.used == {"hour": 71}  # type: ignore[union-attr]
    await second.close()
    await store.open()


@pytest.mark.parametrize("content", [b"no database" * 1000, b"SQLite format 3\0" + b"x" * 5000])
async def test_a_corrupt_file_is_set_aside(
    make_sqlite: MakeStore, path: Path, content: bytes
) -> None:
    given(path, content)
    store = make_sqlite()
    await store.open()
    assert store.health.sentence is None
    await commit(store, "a", ONE_TURN, NOW)
    (aside,) = path.parent.glob("reliability.db.corrupt-*")
    assert aside.read_bytes() == content
    await store.close()


@pytest.mark.parametrize(("broken", "kept"), [("counts", 5), (None, 1)])
async def test_a_file_that_breaks_while_in_use_is_set_aside(
    store: SqliteStore, path: Path, broken: str | None, kept: int
) -> None:
    """What of it can be read is kept, and what comes then is counted."""
    for number in range(5):
        await commit(store, f"s{number}", ONE_TURN, NOW)
    assert store._db is not None
    connection = store._db.connection
    pages = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (broken,))
    ((page,),) = pages.fetchall() or ((1,),)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with path.open("r+b") as opened:
        opened.seek((page - 1) * 4096)
        opened.write(b"broken" * (4096 // 6))
    connection.execute("PRAGMA shrink_memory").fetchall()  # so that it looks
    counts = {HourKey(1, "codex", "fast"): {"requests": 1}}
    await fails(commit(store, "s0", Change(turns=1, counts=counts), NOW), "malformed|not a data")
    await until(lambda: store.health.sentence is None)
    assert rows(path, "sessions") == kept
    assert (await store.load("s0", NOW)).turns == (2 if broken else 1)
    assert {name.suffix[:9] for name in path.parent.glob("*.corrupt-*")} == {".corrupt-"}


@pytest.mark.parametrize("version", [1, 6, 99])
async def test_a_file_of_another_version_is_set_aside(
    make_sqlite: MakeStore, path: Path, version: int, capsys: pytest.CaptureFixture[str]
) -> None:
    given(path, b"")
    connection = sqlite3.connect(path)
    connection.executescript(f"CREATE TABLE other (x); PRAGMA user_version = {version}")
    connection.close()
    log.configure(ObservabilitySettings(log_format="json"))
    store = make_sqlite()
    await store.open()
    assert store.health.sentence is None
    await commit(store, "a", ONE_TURN, NOW)
    (aside,) = path.parent.glob("reliability.db.*-*-*")
    assert aside.name.startswith(f"reliability.db.schema-{version}-")
    assert count(aside, "other") == 0  # the table is there
    lines = map(orjson.loads, capsys.readouterr().err.splitlines())
    (said,) = [line for line in lines if line["event"] == "state_file_set_aside"]
    assert f"has schema version {version}" in said["reason"]
    assert said["now"] == str(aside)
    await store.close()


SESSION_ROW = {"turns": 1, "tier": "", "sticky": {}, "first_seen": 0, "last_seen": 0}
OLD_TABLES = """
    CREATE TABLE entries (
        name TEXT, kind TEXT, content TEXT NOT NULL, PRIMARY KEY (name, kind)
    ) WITHOUT ROWID;
    CREATE TABLE events (
        number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL,
        session TEXT NOT NULL, body TEXT NOT NULL
    );
    INSERT INTO events VALUES (7, 1.0, 'loop_break', 'a', '{"time":1.0,"kind":"loop_break"}');
"""


def given_old(path: Path, version: int, *rows: tuple[str, str, str]) -> None:
    """A file as version 0.1 (3) or 0.2 (4) left it."""
    path.parent.mkdir(exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(f"{OLD_TABLES} PRAGMA user_version = {version}")
    with connection:
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows)
    connection.close()


@pytest.mark.parametrize("version", [3, 4])
async def test_files_of_0_1_and_0_2_are_read(
    make_sqlite: MakeStore, path: Path, version: int
) -> None:
    minute = int(NOW // 60)
    row = {
        "turns": 3,
        "tier": "fast",
        "sticky": {"auto": {"tier": "standard", "until": NOW + 300.5}},
        "first_seen": NOW - 9,
        "last_seen": NOW,
    }
    more = {"window": ["00ff"]} if version == 3 else {"replies": ["one", "two"]}
    used = {"session:a": 70, "session:a:tier:fast": 60, "session:a:estimated": 5}
    hour = (int(NOW // 3600), "codex", "fast")
    given_old(
        path,
        version,
        ("session:a", "sessions", json.dumps({**row, **more})),
        ("session:a", "purses", json.dumps({"used": used, "touched": NOW})),
        ("key:k", "purses", json.dumps({"used": {"key:k": 8}, "touched": NOW})),
        ("hour", "hours", json.dumps([[minute - 1, 40], [minute, 2]])),
        ("fast", "breakers", json.dumps({"failures": 3, "degraded_until": 5.0, "cooldown": 2.5})),
        *[("\t".join(map(str, hour)), "counts", '{"requests":2}')] * (version == 4),
    )
    for _ in range(2):
        store = make_sqlite()
        await store.open()
        limits = [HOUR, Limit("session:a:tier:fast", None, False), Limit("key:k", None, False)]
        state = await store.load("a", NOW, limits)
        assert (state.turns, state.tier, state.used, state.estimated) == (3, "fast", 70, 5)
        assert (state.first_seen, state.last_seen) == (NOW - 9, NOW)
        assert state.sticky == {"auto": Sticky("standard", NOW + 300.5)}
        assert state.replies == (() if version == 3 else ("one", "two"))
        assert state.counts == {"hour": 42, "session:a:tier:fast": 60, "key:k": 8}
        assert await store.breakers() == {"fast": BreakerState(3, 5.0, 2.5)}
        expected = {HourKey(*hour): {"requests": 2}} if version == 4 else {}
        assert await store.counts(hour[0], hour[0]) == expected
        assert [number for number, _ in await store.events(EventQuery())] == [7]
        await store.close()


NONSENSE = [
    ("sessions", "{"),
    ("sessions", "{}"),
    ("sessions", "7"),
    ("sessions", json.dumps({**SESSION_ROW, "sticky": {"auto": 1}})),
    ("sessions", json.dumps({**SESSION_ROW, "last_seen": "x"})),
    ("purses", "[]"),
    ("purses", '{"used": {"session:a": "x"}, "touched": 1}'),
    ("hours", "[1]"),
    ("hours", '[["x", 1]]'),
    ("breakers", '{"failure": 1}'),
    ("breakers", '{"failures": "x"}'),
    ("counts", "{}"),  # of no hour
    ("unknown", "{}"),
]


@pytest.mark.parametrize(("kind", "content"), NONSENSE)
async def test_of_old_rows_that_make_no_sense_only_they_are_left_out(
    make_sqlite: MakeStore,
    path: Path,
    kind: str,
    content: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.configure(ObservabilitySettings(log_format="json"))
    well = json.dumps({**SESSION_ROW, "last_seen": NOW})
    given_old(path, 4, ("session:well", "sessions", well), ("a", kind, content))
    for _ in range(2):
        store = make_sqlite()
        await store.open()
        assert store.health.sentence is None
        assert (await store.load("well", NOW)).turns == 1
        await store.close()
    assert list(path.parent.glob("*.corrupt-*")) == []
    assert reading.rows(path, "*", "entries") == [("a", kind, content)], "nothing is deleted"
    lines = map(orjson.loads, capsys.readouterr().err.splitlines())
    said = [line["rows"] for line in lines if line["event"] == "state_rows_set_aside"]
    assert said == [1], "once, because it is not read again"


async def test_an_event_that_makes_no_sense_hides_no_other(
    make_sqlite: MakeStore, path: Path
) -> None:
    store = make_sqlite()
    await store.open()
    event = {"time": NOW, "kind": "loop_break", "session": "a", "request_id": "r", "agent": ""}
    await add_events(store, [event, event])
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE events SET body = '{' WHERE number = 1")
    store = make_sqlite()
    await store.open()
    for query in (EventQuery(), EventQuery(request_id="r"), EventQuery(after=0)):
        assert [number for number, _ in await store.events(query)] == [2]
    await store.close()


async def test_a_file_locked_by_another_program(store: SqliteStore, path: Path) -> None:
    await commit(store, "a", ONE_TURN, NOW)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    await fails(settle(store, "t", dict.fromkeys([SESSION], 70), NOW), "database is locked")
    # Who comes while it fails is told at once, and counted all the same.
    await fails(settle(store, "t", dict.fromkeys([SESSION], 7), NOW), "database is locked")
    assert (await store.load("a", NOW)).turns == 1, "what was written before can be read"
    other.execute("ROLLBACK")
    other.close()
    await until(lambda: store.health.sentence is None)
    assert (await store.load("a", NOW)).used == 77
    assert rows(path, "sessions") == 1


@pytest.fixture
def full_disk() -> Iterator[Callable[[int], None]]:
    """Files may not grow beyond so many bytes, in this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk(
    make_sqlite: MakeStore, path: Path, full_disk: Callable[[int], None]
) -> None:
    store = make_sqlite()
    await store.open()
    await settle(store, "t", dict.fromkeys([SESSION], 1), NOW)
    full_disk(size(Path(f"{path}-wal")) + 4096)
    failed = 0
    for number in range(50):
        try:
            await commit(store, f"s{number}", Change(turns=1, tier="x" * 3000), NOW + number)
        except StoreError as error:
            assert "can't be written" in str(error)
            failed += 1
    assert failed > 40
    assert store.health.sentence is not None
    await fails(settle(store, "t", dict.fromkeys([SESSION], 6), NOW), "can't be written")
    full_disk(resource.RLIM_INFINITY)
    await until(lambda: store.health.sentence is None)
    await store.close()
    again = make_sqlite()
    await again.open()
    assert (await again.sessions(NOW, limit=0)).number == 50
    assert (await again.load("a", NOW)).used == 7
    await again.close()


READ_ONLY = """
import asyncio, os, sys
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import StoreError
from tests.state.counting import SIZES
os.setgroups([]), os.setgid(65534), os.setuid(65534)

async def main():
    store = SqliteStore(sys.argv[1], SIZES)
    await store.open()
    print(store.health.sentence)
    try:
        await store.load("a", 0.0)
    except StoreError:
        print("serves on")
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("readable", [True, False])
def test_a_file_that_may_not_be_written(tmp_path: Path, readable: bool) -> None:
    if os.getuid() == 0:
        tmp_path.parent.chmod(0o711)
        tmp_path.parent.parent.chmod(0o711)
    folder = tmp_path / "state"
    folder.mkdir()
    path = folder / "reliability.db"
    sqlite3.connect(path).close()
    path.touch(0o644)
    tmp_path.chmod(0o755)
    folder.chmod(0o555 if readable else 0o000)
    code = READ_ONLY if os.getuid() == 0 else READ_ONLY.replace("os.setgroups", "0 and os.set")
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        cwd=root,
        timeout=60,
    )
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert f"{path} can't be opened: Permission denied" in done.stdout
    assert "serves on" in done.stdout


async def test_a_disk_that_hangs_holds_up_nobody_for_long(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions are read as they were then; what is counted is in the file once it works again."""
    monkeypatch.setattr(sqlite, "STALL_SECONDS", 0.02)
    await settle(store, "t", dict.fromkeys([SESSION], 5), NOW)
    goes_on = threading.Event()
    store._look(None)
    store._thread.do(lambda: goes_on.wait(20))
    waiting = asyncio.create_task(settle(store, "t", dict.fromkeys([SESSION], 70), NOW))
    await until(lambda: store.health.sentence is not None)
    await fails(waiting, "the disk takes over")
    await fails(settle(store, "t", dict.fromkeys([SESSION], 7), NOW), "the disk takes over")
    assert (await store.load("a", NOW)).used == 5
    assert isinstance(await store.reserve("u", [SESSION], 7, NOW, NOW + 9), Reserved)
    goes_on.set()
    await until(lambda: store.health.sentence is None)
    await commit(store, "a", ONE_TURN, NOW)
    assert (await store.load("a", NOW)).used == 82
    assert rows(path, "sessions") == 1


async def test_of_too_many_that_wait_for_the_disk_the_oldest_is_told(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_WAITING", 2)
    goes_on = threading.Event()
    store._thread.do(lambda: goes_on.wait(20))
    waiting = [asyncio.create_task(commit(store, name, ONE_TURN, NOW)) for name in "abcd"]
    await fails(waiting[1], "over 2 changes wait")
    goes_on.set()
    await waiting.pop(0)
    await asyncio.gather(*waiting[1:])
    assert {one.session for one in await store.sessions(NOW)} == {"a", "c", "d"}


async def test_what_no_row_can_hold_is_refused_alone(store: SqliteStore) -> None:
    found = await asyncio.gather(
        commit(store, "a", ONE_TURN, NOW),
        commit(store, "a", Change(tier="\ud800"), NOW),
        commit(store, "a", Change(turns=2**70), NOW),
        commit(store, "a", ONE_TURN, NOW),
        return_exceptions=True,
    )
    assert [isinstance(one, Exception) for one in found] == [False, True, True, False]
    assert (await store.load("a", NOW)).turns == 2
    assert store.health.sentence is None
