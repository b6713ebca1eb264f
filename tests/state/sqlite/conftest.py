"""The SQLite store alone, in place of the one of each backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mlx_stack_proxy.state import sqlite
from mlx_stack_proxy.state.sqlite import SqliteStore
from tests.state.conftest import MakeStore


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that fails is tried again at once."""
    monkeypatch.setattr(sqlite, "RETRY_SECONDS", 0.01)


@pytest.fixture
async def store(make_sqlite: MakeStore) -> AsyncIterator[SqliteStore]:
    store = make_sqlite()
    assert isinstance(store, SqliteStore)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "reliability.db"
