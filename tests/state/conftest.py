"""One store for each backend: a test that takes `store` is the contract of all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from app.state.memory import MemoryStore
from app.state.store import Store

MAX_SESSIONS = 5
WINDOW_SIZE = 3
TTL = 1000.0


async def memory() -> Store:
    return MemoryStore(max_sessions=MAX_SESSIONS, window_size=WINDOW_SIZE, session_ttl=TTL)


# A further backend is one more entry: it makes a new, empty store with the sizes above.
BACKENDS: dict[str, Callable[[], Awaitable[Store]]] = {"memory": memory}


@pytest.fixture(params=BACKENDS)
def make_store(request: pytest.FixtureRequest) -> Iterator[Callable[[], Awaitable[Store]]]:
    yield BACKENDS[request.param]


@pytest.fixture
async def store(make_store: Callable[[], Awaitable[Store]]) -> AsyncIterator[Store]:
    store = await make_store()
    await store.open()
    yield store
    await store.close()
