"""What is the Redis store's alone: replicas, a server that goes and comes, keys that expire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest
from redis.asyncio import Redis

from mlx_stack_proxy import log
from mlx_stack_proxy.engine.session_id import digest
from mlx_stack_proxy.settings import ObservabilitySettings
from mlx_stack_proxy.state import redis, redis_link
from mlx_stack_proxy.state.hourly import HourKey, hour_of
from mlx_stack_proxy.state.redis import RedisStore
from mlx_stack_proxy.state.store import (
    BreakerState,
    Change,
    EventQuery,
    KeptEvent,
    Limit,
    NotSent,
    Reserved,
    StoreError,
)
from tests.state.conftest import (
    EVENTS_TTL,
    MAX_SESSIONS,
    NOW,
    TTL,
    MakeStore,
    redis_store,
)
from tests.support.redis_server import RedisServer
from tests.support.storing import add_events, commit, save_breaker, settle
from tests.support.waiting import until

HOUR = Limit("hour", 1000, rolling=True)
SESSION = Limit("session:a", 1000, rolling=False)
BOTH = [SESSION, HOUR]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that failed is asked again at once."""
    monkeypatch.setattr(redis_link, "RETRY_SECONDS", 0.01)


@pytest.fixture
def own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """One that a test may stop, kill and freeze; it is waited for as users would."""
    monkeypatch.setattr(redis_link, "CALL_SECONDS", 0.5)
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture
async def replicas(make_redis: MakeStore) -> AsyncIterator[list[RedisStore]]:
    stores = [make_redis(), make_redis()]
    async with AsyncExitStack() as stack:
        for store in stores:
            await store.open()
            stack.push_async_callback(store.close)
        yield stores  # type: ignore[misc]


async def failed(store: RedisStore) -> str:
    with pytest.raises(StoreError) as caught:
        await store.load("a", NOW)
    return str(caught.value)


# Replicas


async def test_two_replicas_never_exceed_a_limit(replicas: list[RedisStore]) -> None:
    async def exchange(number: int) -> int:
        store = replicas[number % 2]
        found = await store.reserve(f"t{number}", BOTH, 30, NOW, NOW + 60)
        return int(isinstance(found, Reserved))

    admitted = await asyncio.gather(*(exchange(number) for number in range(64)))
    assert sum(admitted) == 33
    assert (await replicas[0].load("a", NOW)).reserved == 990
    await asyncio.gather(
        *(
            settle(replicas[(n + 1) % 2], f"t{n}", dict.fromkeys(BOTH, 10), NOW)
            for n in range(64)
            if admitted[n]
        )
    )
    for store in replicas:
        found = await store.reserve("probe", BOTH, 0, NOW, NOW)
        assert found == Reserved({"session:a": 330, "hour": 330})
        assert (await store.load("a", NOW)).reserved == 0


async def test_two_replicas_keep_one_session(replicas: list[RedisStore]) -> None:
    async def exchange(number: int) -> None:
        delta = Change(turns=1)
        await commit(replicas[number % 2], "a", delta, NOW)

    await asyncio.gather(*(exchange(number) for number in range(64)))
    one, two = [await store.load("a", NOW) for store in replicas]
    assert one == two
    assert one.turns == 64


async def test_a_reservation_of_a_dead_replica_expires(replicas: list[RedisStore]) -> None:
    await replicas[0].reserve("t", [SESSION], 1000, NOW, NOW + 60)
    await replicas[0].close()
    assert not isinstance(
        await replicas[1].reserve("u", [SESSION], 1, NOW + 59, NOW + 99), Reserved
    )
    assert isinstance(await replicas[1].reserve("u", [SESSION], 1, NOW + 60, NOW + 99), Reserved)


# Keys


async def test_every_key_has_the_tag_and_expires(
    replicas: list[RedisStore], redis_server: RedisServer
) -> None:
    store = replicas[0]
    await commit(store, "a", Change(turns=1, tier="fast"), NOW)
    await store.reserve("t", BOTH, 10, NOW, NOW + 60)
    await settle(
        store, "u", dict.fromkeys([*BOTH, Limit("session:a:tier:fast", None, False)], 7), NOW
    )
    await save_breaker(store, "fast", BreakerState(1))
    await add_events(store, [{"time": NOW, "kind": "k", "session": "a"}])
    async with Redis.from_url(redis_server.url) as redis:
        left = {key.decode(): await redis.ttl(key) for key in await redis.keys("*")}
    assert len(left) >= 9
    assert all(key.startswith("{mlx-stack}:") for key in left)
    forever = EVENTS_TTL + 31 * 86_400
    assert {key: seconds for key, seconds in left.items() if not 0 < seconds <= forever} == {}
    for key in ("s:a", "p:session:a", "sessions"):
        assert TTL <= left["{mlx-stack}:" + key] <= TTL + 3600


# A server that goes away


async def test_what_is_spent_while_it_is_away_is_counted_later_and_once(
    own_server: RedisServer,
) -> None:
    store = redis_store(own_server.url)
    await store.open()
    await store.reserve("t", BOTH, 100, NOW, NOW + 60)
    own_server.freeze()
    lost = asyncio.gather(
        *(settle(store, "t", dict.fromkeys(BOTH, 1), NOW) for _ in range(8)),
        *(commit(store, "a", Change(turns=1), NOW) for _ in range(8)),
        return_exceptions=True,
    )
    assert {type(one) for one in await lost} == {StoreError}
    await until(lambda: store.health.sentence is not None)
    with pytest.raises(NotSent):
        await settle(store, "u", dict.fromkeys(BOTH, 1), NOW)
    own_server.thaw()  # it now does what it was sent, though nobody waits for the answers
    await until(lambda: not store._pending)
    assert store.health.sentence is None
    found = await store.load("a", NOW)
    assert (found.used, found.reserved, found.turns) == (9, 0, 8)
    await store.close()


async def test_a_server_that_hangs_is_waited_for_only_once(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_link, "CALL_SECONDS", 0.2)
    store = redis_store(own_server.url)
    await store.open()
    await settle(store, "t", dict.fromkeys([SESSION], 70), NOW)
    own_server.freeze()
    assert "no answer" in await failed(store)
    await until(lambda: store.health.sentence is not None)
    # From now on nobody waits: the call that nobody makes can't take long.
    link = store._link
    monkeypatch.setattr(link, "_redis", None)
    monkeypatch.setattr(link, "_ping", asyncio.Event().wait)
    assert "no answer" in await failed(store)
    monkeypatch.undo()
    own_server.thaw()
    await until(lambda: store.health.sentence is None)
    assert (await store.load("a", NOW)).used == 70
    await store.close()


async def test_a_start_without_a_server(own_server: RedisServer) -> None:
    own_server.kill()
    store = redis_store(own_server.url)
    await store.open()
    assert "can't be reached" in await failed(store)
    assert store.health.sentence is not None
    own_server.start()
    await until(lambda: store.health.sentence is None)
    await commit(store, "a", Change(turns=1), NOW)
    await store.close()
    assert await failed(store) == "Redis is closed"


async def test_scripts_that_the_server_has_forgotten_are_sent_again(
    replicas: list[RedisStore], redis_server: RedisServer
) -> None:
    await settle(replicas[0], "t", dict.fromkeys([SESSION], 7), NOW)
    redis_server.ask("SCRIPT", "FLUSH")
    await settle(replicas[0], "t", dict.fromkeys([SESSION], 7), NOW)
    assert (await replicas[1].load("a", NOW)).used == 14


async def test_a_server_that_refuses_to_write(own_server: RedisServer) -> None:
    store = redis_store(own_server.url)
    await store.open()
    await commit(store, "a", Change(turns=1), NOW)
    own_server.ask("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreError, match=r"Redis refuses: .*maxmemory"):
        await commit(store, "a", Change(turns=1), NOW)
    assert (await store.load("a", NOW)).turns == 1
    assert store.health.sentence is not None  # to read goes well, which does not hide it
    own_server.ask("CONFIG", "SET", "maxmemory", "0")
    await commit(store, "a", Change(turns=1), NOW)
    assert store.health.sentence is None
    # What was refused is added after all, once.
    while (await store.load("a", NOW)).turns < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert (await store.load("a", NOW)).turns == 3
    await store.close()


async def test_scripts_that_are_refused_by_turns_fill_no_log(
    own_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server's sentence names the script, so each script has a sentence of its own."""
    log.configure(ObservabilitySettings(log_format="json"))
    store = redis_store(own_server.url)
    await store.open()
    own_server.ask("CONFIG", "SET", "min-replicas-to-write", "1")
    for number in range(5):
        with pytest.raises(StoreError, match="Redis refuses"):
            await commit(store, "a", Change(turns=1), NOW)
        with pytest.raises(StoreError, match="Redis refuses"):
            await store.reserve(f"t{number}", BOTH, 30, NOW, NOW + 60)
    lines = list(map(orjson.loads, capsys.readouterr().err.splitlines()))
    assert [line["what"] for line in lines] == ["write", "reserve"]
    # The link is lost and found again: what is refused is refused still, and no longer the link.
    store._link._lose(OSError("gone"))
    while store._link._lost is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert "refuses" in (store.health.sentence or "")
    own_server.ask("CONFIG", "SET", "min-replicas-to-write", "0")
    await commit(store, "a", Change(turns=1), NOW)
    await store.reserve("t", BOTH, 30, NOW, NOW + 60)
    assert store.health.sentence is None
    await store.close()


async def test_to_look_whether_it_is_there_disturbs_no_call(replicas: list[RedisStore]) -> None:
    store = replicas[0]

    async def load(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await store.load("a", NOW)

    for _ in range(20):
        await asyncio.gather(*(load(0) for _ in range(16)))
        store._link._ping_due.set()  # as after a call that got no answer
        await asyncio.gather(*(load(turns) for turns in range(8)))


async def test_a_call_without_an_answer_is_not_the_servers_fault_alone(
    replicas: list[RedisStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process may have been busy: while a ping is answered, others are not refused."""
    store = replicas[0]
    monkeypatch.setattr(redis_link, "CALL_SECONDS", 0.05)
    loads = asyncio.gather(store.load("a", NOW), return_exceptions=True)
    await asyncio.sleep(0)
    time.sleep(0.1)  # noqa: ASYNC251  # nothing else runs in this process
    await loads
    monkeypatch.setattr(redis_link, "CALL_SECONDS", 30.0)
    assert (await store.load("a", NOW)).session == "a"
    assert store.health.sentence is None


@pytest.mark.parametrize("keys", [1, 3, 100])
async def test_a_burst_of_new_sessions_is_bounded_before_the_house_is_kept(
    replicas: list[RedisStore], monkeypatch: pytest.MonkeyPatch, keys: int
) -> None:
    """However many API keys they have, the oldest go."""
    monkeypatch.setattr(redis, "STEP", 4)
    names = [digest(f"key-{number % keys}", str(number)) for number in range(40)]
    for number, name in enumerate(names):
        await commit(replicas[number % 2], name, Change(turns=1), NOW + number)
        listed = await replicas[0].sessions(NOW + number)
        assert listed.number <= MAX_SESSIONS + 4
        newest = names[: number + 1][-MAX_SESSIONS:]
        assert {state.session for state in listed} >= {*newest}


async def test_a_cancelled_request_leaves_no_answer_for_the_next(
    replicas: list[RedisStore],
) -> None:
    store = replicas[0]
    for number in range(20):
        gone = asyncio.create_task(settle(store, "t", dict.fromkeys([SESSION], 0), NOW))
        for _ in range(number % 7):
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert (await store.load(f"s{number}", NOW)).session == f"s{number}"
    assert store.health.sentence is None


ROW = HourKey(hour_of(NOW), "codex", "fast")


async def test_a_write_whose_caller_is_cancelled_counts_once(replicas: list[RedisStore]) -> None:
    """It has the events of others, which are nowhere else any more."""
    writes = 60
    for number in range(writes):
        event = KeptEvent(NOW, "k", "a", '{"time":1,"kind":"k","session":"a"}')
        change = Change(turns=1, events=[event], counts={ROW: {"requests": 1}})
        gone = asyncio.create_task(commit(replicas[0], "a", change, NOW))
        for _ in range(1 + (writes - number) % 30):  # the last ones are broken off early
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
    assert replicas[0]._pending
    assert (await replicas[0].counts(ROW.hour, ROW.hour))[ROW] == {"requests": writes}
    assert not replicas[0]._pending
    assert (await replicas[0].load("a", NOW)).turns == writes
    assert await replicas[0].count_events(EventQuery()) == writes


async def test_a_cancelled_call_is_cancelled_wherever_it_is(replicas: list[RedisStore]) -> None:
    """Else whoever has ended a follower of the events, say, waits for its end for ever."""
    store = replicas[0]
    ended: list[object] = []
    for turns in [*range(40)] * 5:
        asking = asyncio.create_task(store.events(EventQuery(limit=1)))
        for _ in range(turns):
            await asyncio.sleep(0)
        if asking.cancel():
            ended += await asyncio.gather(asking, return_exceptions=True)
    assert ended and all(isinstance(one, asyncio.CancelledError) for one in ended)


async def test_a_cancelled_call_is_cancelled_though_the_server_hangs(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not failed: who takes failures lightly would go on."""
    monkeypatch.setattr(redis_link, "CALL_SECONDS", 0.2)
    store = redis_store(own_server.url)
    await store.open()
    ended: list[object] = []
    for turns in [*range(20)] * 3:
        await until(lambda: store.health.sentence is None)
        await store.load("a", NOW)
        own_server.freeze()
        asking = asyncio.create_task(store.events(EventQuery(limit=1)))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        ended += await asyncio.gather(asking, return_exceptions=True)
        own_server.thaw()
    assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
    await store.close()
