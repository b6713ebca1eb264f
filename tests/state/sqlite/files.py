"""What the tests of the SQLite store share: what is in its file, and waiting for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.state.store import Change, Limit, StoreError
from tests.state import reading

ONE_TURN = Change(turns=1)
HOUR = Limit("hour", 1000, rolling=True)
SESSION = Limit("session:a", 1000, rolling=False)


async def fails(call: Awaitable[Any], because: str) -> None:
    with pytest.raises(StoreError, match=because):
        await call


def rows(path: Path, kind: str) -> int:
    """How many of a kind there are in the file; none where there is no file yet."""
    return len(reading.rows(path, "*", kind))


def count(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    (found,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    connection.close()
    return int(found)


def size(path: Path) -> int:
    return path.stat().st_size


def given(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
