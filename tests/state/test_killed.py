"""Processes that end in the midst of counting: what was acknowledged is there, nothing twice."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlx_stack_proxy.state.sqlite import SqliteStore
from tests.state.counting import HOUR, SIZES, TOKENS

# `make kills` makes it thirty.
ROUNDS = int(os.environ.get("KILL_ROUNDS", "3"))
SESSIONS = 8


def counted_until(path: Path, sig: signal.Signals, lines: int) -> dict[str, int]:
    """Let a process count, end it after so many acknowledgements; the last one of each session."""
    command = [sys.executable, "-m", "tests.state.counting", str(path), str(SESSIONS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(sig)
    said += process.stdout.read().splitlines(keepends=True)
    assert process.wait(30) == (-signal.SIGKILL if sig is signal.SIGKILL else 0)
    assert len(said) >= lines
    last: dict[str, int] = {}
    for line in said:
        if line.endswith(b"\n"):  # else it was cut off by the kill
            name, number = line.decode().split()
            last[name] = max(int(number), last.get(name, 0))
    return last


def check_file(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


async def kept(path: Path) -> tuple[dict[str, int], dict[str, int], int]:
    """Turns and tokens of each session, and the hour's tokens, as the next process finds them."""
    store = SqliteStore(str(path), SIZES)
    await store.open()
    assert store.health.sentence is None
    found = await store.sessions(time.time(), 0, SESSIONS + 1)
    hour = (await store.load("", time.time(), [HOUR])).counts["hour"]
    await store.close()
    return {s.session: s.turns for s in found}, {s.session: s.used for s in found}, hour


async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    turns_before: dict[str, int] = {}
    used_before: dict[str, int] = {}
    for _ in range(ROUNDS):
        acknowledged = counted_until(path, signal.SIGKILL, random.randint(20, 400))
        check_file(path)
        turns, used, hour = await kept(path)
        assert names_in(tmp_path) == ["state.db", "state.db.lock"]  # it was not set aside
        for name, number in acknowledged.items():
            exchanges = number - turns_before.get(name, 0)
            # One more may have been written whose acknowledgement was not said yet.
            assert turns[name] in (number, number + 1)
            spent = used[name] - used_before.get(name, 0)
            assert spent in (exchanges * TOKENS, (exchanges + 1) * TOKENS)
        assert hour == sum(used.values())
        turns_before, used_before = turns, used


@pytest.mark.parametrize("lines", [1, 200])
async def test_sigterm_loses_nothing_and_leaves_one_file(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "state.db"
    acknowledged = counted_until(path, signal.SIGTERM, lines)
    assert names_in(tmp_path) == ["state.db", "state.db.lock"]
    turns, used, hour = await kept(path)
    assert turns == acknowledged
    assert used == {name: number * TOKENS for name, number in acknowledged.items()}
    assert hour == sum(used.values())
