"""One store for each backend: a test that takes `store` is the contract of all of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.state import redis_link
from mlx_stack_proxy.state.redis import RedisStore
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Sizes, Store
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer

MAX_SESSIONS = 5
TTL = 1000.0
EVENTS_TTL = 10_000.0
MAX_EVENTS = 60
NOW = 1_780_000_020.0  # a third into a minute
SIZES = Sizes(MAX_SESSIONS, TTL, EVENTS_TTL, MAX_EVENTS)

MakeStore = Callable[[], Store]


async def keep_house(store: Store) -> None:
    """Forget now what a store forgets every 30 seconds."""
    assert isinstance(store, SqliteStore | RedisStore)
    await store.keep_house()


@pytest.fixture
def make_sqlite(tmp_path: Path) -> MakeStore:
    """Makes stores on one and the same file."""
    return lambda: SqliteStore(str(tmp_path / "state" / "reliability.db"), SIZES, lambda: NOW)


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """On a machine that is short of time a server may be slow; few tests are about that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis_link, "CALL_SECONDS", 30.0)
        yield


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One for all tests that harm it not; a cluster's only node, which minds the hash tags."""
    cluster = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with RedisServer(tmp_path_factory.mktemp("redis"), *cluster) as server:
        assert server.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383") == b"+OK"
        while server.ask("SET", "{mlx-stack}", "1") != b"+OK":
            time.sleep(0.02)
        yield server


def redis_store(url: str, sizes: Sizes = SIZES, **more: Any) -> RedisStore:
    return RedisStore(url, sizes, lambda: NOW, **more)


@pytest.fixture
def make_redis(redis_server: RedisServer) -> MakeStore:
    """Makes stores on one and the same server, which is empty at first."""
    assert redis_server.ask("FLUSHALL") == b"+OK"
    return lambda: redis_store(redis_server.url)


# A further backend is one more fixture `make_NAME`: it makes stores with the sizes above.
@pytest.fixture(params=["sqlite", "redis"])
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    make: MakeStore = request.getfixturevalue(f"make_{request.param}")
    return make


@pytest.fixture
async def store(make_store: MakeStore) -> AsyncIterator[Store]:
    store = make_store()
    await store.open()
    yield store
    await store.close()
