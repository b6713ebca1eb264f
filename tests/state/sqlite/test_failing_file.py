"""Files of the SQLite store that fail: taken, corrupt, old, full, locked, hanging."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.core.breaker import BreakerState
from app.state import keeper, state_file, state_log
from app.state.sqlite import SqliteStore
from app.state.store import (
    EventQuery,
    SessionDelta,
    SessionState,
    Sticky,
    StoreError,
)
from tests.state.conftest import NOW, MakeStore
from tests.state.sqlite.files import HOUR, ONE_TURN, SESSION, count, fails, given, rows, size
from tests.support.waiting import until


async def test_a_second_process_is_told_who_has_the_file(
    store: SqliteStore, make_sqlite: MakeStore, path: Path
) -> None:
    await store.settle("t", dict.fromkeys([HOUR], 70), NOW)
    second = make_sqlite()
    await second.open()
    assert second.trouble is not None
    assert f"{path} is in use by another process (pid {os.getpid()})" in second.trouble
    for call in (
        second.load("a", NOW),
        second.settle("t", dict.fromkeys([HOUR], 1), NOW),
        second.breakers(),
    ):
        await fails(call, "in use by another process")
    # It takes over where the first one ends.
    await store.close()
    await until(lambda: second.trouble is None)
    found = await second.reserve("u", [HOUR], 0, NOW, NOW)
    assert found.used == {"hour": 70}  # type: ignore[union-attr]
    await second.close()
    await store.open()


@pytest.mark.parametrize("content", [b"no database" * 1000, b"SQLite format 3\0" + b"x" * 5000])
async def test_a_corrupt_file_is_set_aside(
    make_sqlite: MakeStore, path: Path, content: bytes
) -> None:
    given(path, content)
    store = make_sqlite()
    await store.open()
    assert store.trouble is None
    await store.commit("a", ONE_TURN, NOW)
    (aside,) = path.parent.glob("reliability.db.corrupt-*")
    assert aside.read_bytes() == content
    await store.close()


async def test_a_file_that_breaks_while_in_use_is_written_anew(
    store: SqliteStore, path: Path
) -> None:
    """Nothing that was counted is lost: memory has it."""
    for number in range(5):
        await store.commit(f"s{number}", ONE_TURN, NOW)
    await store.settle("t", dict.fromkeys([SESSION], 70), NOW)
    connection = store._keeper._file._connection
    assert connection is not None
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with path.open("r+b") as opened:
        opened.seek(100)
        opened.write(b"broken" * 10_000)
    connection.execute("PRAGMA shrink_memory").fetchall()  # so that it looks
    await fails(store.commit("s0", ONE_TURN, NOW), "malformed")
    await until(lambda: store.trouble is None)
    assert rows(path, "sessions") == 5
    assert len(list(path.parent.glob("*.corrupt-*"))) == 1
    assert (await store.load("a", NOW)).used == 70


async def test_a_file_of_a_newer_version_is_left_alone(make_sqlite: MakeStore, path: Path) -> None:
    given(path, b"")
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE newer (x); PRAGMA user_version = 99")
    connection.close()
    store = make_sqlite()
    await store.open()
    await fails(store.load("a", NOW), "written by a newer version")
    await store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("newer",)]
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


async def test_a_file_of_an_older_version_is_migrated(
    make_sqlite: MakeStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make_sqlite()
    await one.open()
    await one.commit("a", ONE_TURN, NOW)
    await one.close()
    more = "CREATE TABLE more (x); INSERT INTO more VALUES (1)"
    monkeypatch.setattr(state_file, "MIGRATIONS", (*state_file.MIGRATIONS, more))
    for _ in range(2):  # the second time there is nothing to do
        two = make_sqlite()
        await two.open()
        assert (await two.load("a", NOW)).turns == 1
        await two.close()
        assert count(path, "more") == 1


FIRST_VERSION = """
INSERT INTO sessions VALUES
    ('a', 2, 'fast', '["00ff", ""]', '{"auto": ["standard", 1780000300.5]}',
        1780000019.25, 1780000020.5),
    ('b', 1, '', '[]', '{}', 1780000010.0, 1780000010.0);
INSERT INTO purses
    VALUES ('session:a', '{"session:a": 70, "session:a:estimated": 7}', 1780000020.0);
INSERT INTO hours VALUES ('hour', '[[29666666, 30], [29666667, 40]]');
INSERT INTO breakers VALUES ('fast', 3, 1780000050.0, 30.0);
INSERT INTO events VALUES (4, 1780000020.0, 'k', 'a', '{"kind": "k"}');
PRAGMA user_version = 1;
"""


async def test_a_file_of_the_first_version(make_sqlite: MakeStore, path: Path) -> None:
    given(path, b"")
    connection = sqlite3.connect(path)
    connection.executescript(state_file.MIGRATIONS[0] + FIRST_VERSION)
    connection.close()
    for _ in range(2):  # the second time as it was written now
        store = make_sqlite()
        await store.open()
        assert store.trouble is None
        assert await store.load("a", NOW + 1) == SessionState(
            "a",
            used=70,
            estimated=7,
            turns=2,
            tier="fast",
            window=(b"\x00\xff", b""),
            sticky={"auto": Sticky("standard", 1780000300.5)},
            first_seen=1780000019.25,
            last_seen=1780000020.5,
        )
        assert [s.session for s in await store.sessions(NOW)] == ["a", "b"]
        assert await store.breakers() == {"fast": BreakerState(3, 1780000050.0, 30.0)}
        assert await store.events(EventQuery()) == [(4, {"kind": "k"})]
        found = await store.reserve("u", [HOUR], 0, NOW, NOW)
        assert found.used == {"hour": 70}  # type: ignore[union-attr]
        await store.close()


async def test_rows_that_make_no_sense_are_set_aside(make_sqlite: MakeStore, path: Path) -> None:
    one = make_sqlite()
    await one.open()
    await one.close()
    for nonsense in ("{", '{"sessions": [["a", 1]]}', '{"unknown": [["a"]]}', "7"):
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("INSERT INTO log (changes) VALUES (?)", (nonsense,))
        connection.close()
        store = make_sqlite()
        await store.open()
        assert store.trouble is None
        await store.close()
    assert len(list(path.parent.glob("*.corrupt-*"))) == 4


async def test_a_file_locked_by_another_program(store: SqliteStore, path: Path) -> None:
    await store.commit("a", ONE_TURN, NOW)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    await fails(store.settle("t", dict.fromkeys([SESSION], 70), NOW), "database is locked")
    # Who comes while it fails is told at once, and counted all the same.
    await fails(store.settle("t", dict.fromkeys([SESSION], 7), NOW), "database is locked")
    assert (await store.load("a", NOW)).used == 77
    other.execute("ROLLBACK")
    other.close()
    await until(lambda: store.trouble is None)
    assert rows(path, "purses") == 1


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
    await store.settle("t", dict.fromkeys([SESSION], 1), NOW)
    full_disk(size(Path(f"{path}-wal")) + 4096)
    failed = 0
    for number in range(50):
        try:
            await store.commit(f"s{number}", SessionDelta(turns=1, window=(b"x" * 3000,)), NOW)
        except StoreError as error:
            assert "can't be written" in str(error)
            failed += 1
    assert failed > 40
    assert store.trouble is not None
    await fails(store.settle("t", dict.fromkeys([SESSION], 6), NOW), "can't be written")
    full_disk(resource.RLIM_INFINITY)
    await until(lambda: store.trouble is None)
    await store.close()
    again = make_sqlite()
    await again.open()
    assert {s.session for s in await again.sessions(NOW)} == {f"s{n}" for n in range(45, 50)}
    assert (await again.load("a", NOW)).used == 7
    await again.close()


READ_ONLY = """
import asyncio, os, sys
from app.state.sqlite import SqliteStore
from app.state.store import StoreError
from tests.state.counting import SIZES
os.setgroups([]), os.setgid(65534), os.setuid(65534)

async def main():
    store = SqliteStore(sys.argv[1], **SIZES)
    await store.open()
    print(store.trouble)
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
    root = Path(__file__).parents[2]
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
    monkeypatch.setattr(keeper, "STALL_SECONDS", 0.02)
    goes_on = threading.Event()
    write = state_file.StateFile.write

    def slow(self: state_file.StateFile, batch: state_log.Batch) -> None:
        goes_on.wait(20)
        write(self, batch)

    monkeypatch.setattr(state_file.StateFile, "write", slow)
    waiting = asyncio.create_task(store.settle("t", dict.fromkeys([SESSION], 70), NOW))
    await until(lambda: store.trouble is not None)
    await fails(store.settle("t", dict.fromkeys([SESSION], 7), NOW), "the disk takes over")
    assert (await store.load("a", NOW)).used == 77
    goes_on.set()
    await until(lambda: store.trouble is None)
    await asyncio.gather(waiting, return_exceptions=True)
    await store.commit("a", ONE_TURN, NOW)
    assert rows(path, "purses") == 1


async def test_an_event_that_is_no_json_is_refused_alone(store: SqliteStore) -> None:
    await fails(store.add_events([{"time": 1, "kind": "k", "session": "", "x": object()}]), "event")
    await store.add_events([{"time": 1.0, "kind": "k", "session": ""}])
    assert len(await store.events(EventQuery())) == 1


async def test_what_is_no_text_is_said(store: SqliteStore) -> None:
    await fails(store.commit("a", SessionDelta(tier="\ud800"), NOW), "can't be written: TypeError")
    await fails(store.delete("a"), "can't be written: TypeError")
    await until(lambda: store.trouble is None)
