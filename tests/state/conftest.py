"""One store for each backend: a test that takes `store` is the contract of all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from app.state.memory import MemoryStore
from app.state.sqlite import SqliteStore
from app.state.store import Store

MAX_SESSIONS = 5
WINDOW_SIZE = 3
TTL = 1000.0
EVENTS_TTL = 10_000.0
NOW = 1_780_000_020.0  # a third into a minute

MakeStore = Callable[[], Store]


@pytest.fixture
def make_memory() -> MakeStore:
    return lambda: MemoryStore(max_sessions=MAX_SESSIONS, window_size=WINDOW_SIZE, session_ttl=TTL)


@pytest.fixture
def make_sqlite(tmp_path: Path) -> MakeStore:
    """Makes stores on one and the same file."""
    return lambda: SqliteStore(
        str(tmp_path / "state" / "reliability.db"),
        max_sessions=MAX_SESSIONS,
        window_size=WINDOW_SIZE,
        session_ttl=TTL,
        events_ttl=EVENTS_TTL,
        clock=lambda: NOW,
    )


# A further backend is one more fixture `make_NAME`: it makes stores with the sizes above.
@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    make: MakeStore = request.getfixturevalue(f"make_{request.param}")
    return make


@pytest.fixture
async def store(make_store: MakeStore) -> AsyncIterator[Store]:
    store = make_store()
    await store.open()
    yield store
    await store.close()
