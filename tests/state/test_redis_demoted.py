"""A Redis that becomes a replica while its connections stay, and one that is killed."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mlx_stack_proxy.state import redis_link
from mlx_stack_proxy.state.redis import RedisStore
from mlx_stack_proxy.state.store import Change, Limit, Settlement, StoreError
from tests.state.conftest import NOW, SIZES, redis_store
from tests.support.redis_server import RedisServer
from tests.support.storing import commit
from tests.support.switched_address import SwitchedAddress
from tests.support.waiting import until

SIZES_100 = replace(SIZES, max_sessions=100)
HOUR = Limit("hour", None, rolling=True)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that failed is asked again at once."""
    monkeypatch.setattr(redis_link, "RETRY_SECONDS", 0.01)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[RedisServer]]:
    """A master and its replica, in step."""
    pair = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        server = RedisServer(tmp_path / name, "--repl-diskless-sync-delay", "0")
        server.start()
        pair.append(server)
    assert pair[1].ask("REPLICAOF", "127.0.0.1", str(pair[0].port)) == b"+OK"
    in_step(*pair)
    yield pair
    for server in pair:
        server.stop()


@pytest.fixture
async def address(servers: list[RedisServer]) -> AsyncIterator[SwitchedAddress]:
    async with SwitchedAddress(servers[0].port) as address:
        yield address


def in_step(master: RedisServer, replica: RedisServer) -> None:
    """Wait until the replica has all that the master has: its stream keeps the order."""
    end = time.monotonic() + 20
    mark = f"mark:{secrets.token_hex(8)}"
    assert master.ask("SET", mark, "1") == b"+OK"
    while replica.ask("EXISTS", mark) != b":1":
        assert time.monotonic() < end, "the replica does not follow"


class Load:
    """Exchanges that go on until they are stopped; ``finished``: how many were to be counted."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._over = asyncio.Event()
        self._tasks = [asyncio.create_task(self._run(f"s{n}")) for n in range(8)]
        self.finished = self.failed = 0

    async def _run(self, name: str) -> None:
        while not self._over.is_set():
            self.finished += 1
            settlement = Settlement(f"t{self.finished}", {HOUR: 1})
            try:
                await commit(self._store, name, Change(turns=1), NOW, settlement)
            except StoreError:
                self.failed += 1
            await asyncio.sleep(0.001)

    async def more(self) -> None:
        """Some more of them, after what has happened."""
        target = self.finished + 100
        await until(lambda: self.finished >= target)

    async def stop(self) -> None:
        self._over.set()
        await asyncio.gather(*self._tasks)


async def counted(store: RedisStore) -> tuple[int, int]:
    """The turns of all sessions, and the tokens of the hour."""
    turns = sum(one.turns for one in await store.sessions(NOW))
    return turns, (await store.load("x", NOW, [HOUR])).counts["hour"]


async def test_a_redis_that_is_demoted_under_load_loses_nothing(
    servers: list[RedisServer], address: SwitchedAddress
) -> None:
    """Its connections stay, so that nothing but its `READONLY` tells."""
    one, two = servers
    store = redis_store(f"redis://127.0.0.1:{address.port}/0", SIZES_100)
    await store.open()
    load = Load(store)
    for old, new in ((one, two), (two, one)):
        await load.more()
        in_step(old, new)
        # As a planned failover does it: no more writes, the last ones over, then the roles.
        assert old.ask("FAILOVER", "TO", "127.0.0.1", str(new.port)) == b"+OK"
        while new.ask("SET", "mark", "2") != b"+OK":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        failed = load.failed
        await until(lambda failed=failed: load.failed > failed and store.health.sentence)
        assert "replica" in str(store.health.sentence)
        await load.more()
        address.target = new.port
        await until(lambda: store.health.sentence is None)
    await load.more()
    await load.stop()
    await until(lambda: not store._pending)
    assert load.failed > 0
    assert await counted(store) == (load.finished, load.finished)
    await store.close()


async def test_a_redis_that_is_killed_under_load_loses_nothing(
    servers: list[RedisServer], address: SwitchedAddress
) -> None:
    one, two = servers
    store = redis_store(f"redis://127.0.0.1:{address.port}/0", SIZES_100)
    await store.open()
    load = Load(store)
    await load.more()
    in_step(one, two)  # in this turn of the loop nothing more is asked of it
    one.kill()
    assert two.ask("REPLICAOF", "NO", "ONE") == b"+OK"
    address.target = two.port
    await load.more()
    await load.stop()
    await until(lambda: store.health.sentence is None and not store._pending)
    assert await counted(store) == (load.finished, load.finished)
    await store.close()


async def test_a_start_at_a_replica_waits_for_the_master(servers: list[RedisServer]) -> None:
    store = redis_store(servers[1].url)
    await store.open()
    assert "replica" in str(store.health.sentence)
    servers[1].ask("REPLICAOF", "NO", "ONE")
    await until(lambda: store.health.sentence is None)
    await store.close()
