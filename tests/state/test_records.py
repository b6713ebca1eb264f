"""Records of exchanges, whichever backend keeps them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mlx_stack_proxy.state.redis import RedisStore
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Change, KeptRecord, Limit, Settlement, Store
from tests.state.conftest import NOW, SIZES, MakeStore, keep_house
from tests.support.redis_server import RedisServer


def record(number: int, agent: str = "codex", body: bytes = b'{"tier":"fast"}') -> KeptRecord:
    return KeptRecord(f"req-{number}", NOW + number, agent, "a", body)


async def test_a_record_is_found_by_its_request(store: Store) -> None:
    assert await store.record("req-1") is None
    one, again = record(1, body='{"words":"ü"}'.encode()), record(1, "aider")
    await store.write(Change(records=[one, record(2)]), NOW)
    assert await store.record("req-1") == one
    assert await store.record("req") is None
    await store.write(Change(records=[again]), NOW)
    assert await store.record("req-1") == again, "the newest of two"


async def test_the_newest_record_is_found(store: Store) -> None:
    records = [record(number, "codex" if number % 2 else "aider") for number in range(6)]
    await store.write(Change(records=records[:3]), NOW)
    await store.write(Change(records=records[3:]), NOW)
    assert await store.record() == records[5]
    assert await store.record(agent="aider") == records[4]
    assert await store.record(agent="nobody") is None


async def test_a_record_is_written_with_its_exchange(make_store: MakeStore) -> None:
    store, hour = make_store(), Limit("hour", None, rolling=True)
    await store.open()
    settlement = Settlement("t", {hour: 7})
    await store.write(Change("a", 1, settlement=settlement, records=[record(1)]), NOW)
    await store.close()
    again = make_store()
    await again.open()
    assert await again.record("req-1") == record(1)
    assert (await again.load("a", NOW, [hour])).counts == {"hour": 7}
    await again.close()


@pytest.mark.parametrize("bound", [{"max_records": 4}, {"max_record_bytes": 4 * 15 + 3}])
@pytest.mark.parametrize("backend", ["memory", "redis"])
async def test_records_are_bounded_by_number_and_by_bytes(
    request: pytest.FixtureRequest, backend: str, bound: dict[str, int]
) -> None:
    sizes = replace(SIZES, **bound)
    if backend == "memory":
        store: Store = SqliteStore(None, sizes, lambda: NOW)
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        server.ask("FLUSHALL")
        store = RedisStore(server.url, sizes, lambda: NOW)
    await store.open()
    for number in range(9):
        await store.write(Change(records=[record(number)]), NOW)
    await keep_house(store)
    found = [await store.record(f"req-{number}") is not None for number in range(9)]
    assert found == [False] * 5 + [True] * 4
    await store.close()
