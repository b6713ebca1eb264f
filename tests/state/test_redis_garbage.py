"""What another program wrote into our keys in Redis: left out and counted, and nobody's trouble."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.state.redis import RedisStore
from mlx_stack_proxy.state.store import BreakerState, Change, EventQuery, Limit
from tests.state.conftest import NOW, MakeStore
from tests.support.redis_server import RedisServer
from tests.support.storing import add_events, commit, save_breaker, settle

KEY = "{mlx-stack}:"
# Of session `bad`: what is written in its place, or beside it.
SESSIONS = {
    "a string": [("SET", "s:bad", "x")],
    "a list": [("RPUSH", "s:bad", "x")],
    "turns": [("HSET", "s:bad", "turns", "many")],
    "first": [("HSET", "s:bad", "first", "long ago")],
    "a sticky tier": [("HSET", "s:bad", "sticky:auto", "x")],
    "its purse": [("SET", "p:session:bad", "x")],
    "its tokens": [("HSET", "p:session:bad", "session:bad", "x", "touched", str(NOW))],
    "when it was touched": [("HSET", "p:session:bad", "touched", "x")],
    "what is set aside": [("HSET", "r:session:bad", "ticket", "x")],
}


def write(server: RedisServer, *commands: tuple[str, ...]) -> None:
    for name, key, *values in commands:
        if name == "SET":
            server.ask("DEL", KEY + key)
        answer = server.ask(name, KEY + key, *values)
        assert answer is not None and not answer.startswith(b"-"), answer


@pytest.fixture
async def store(make_redis: MakeStore) -> RedisStore:
    store = make_redis()
    await store.open()
    for name in ("good", "bad", "other"):
        await commit(store, name, Change(turns=1), NOW)
    assert isinstance(store, RedisStore)
    return store


@pytest.mark.parametrize("commands", SESSIONS.values(), ids=SESSIONS)
async def test_a_session_that_makes_no_sense_is_left_out_and_counted(
    commands: list[tuple[str, ...]], store: RedisStore, redis_server: RedisServer
) -> None:
    if commands[0][0] == "RPUSH":
        redis_server.ask("DEL", KEY + "s:bad")
    write(redis_server, *commands)
    found = await store.sessions(NOW)
    assert {one.session for one in found} == {"good", "other"}
    assert found.unreadable == 1
    assert (await store.sessions(NOW, limit=0)).number == 3
    assert store.health.sentence is None
    await store.close()


async def test_an_agents_sessions_are_listed_beside_it(
    store: RedisStore, redis_server: RedisServer
) -> None:
    await commit(store, "good", Change(turns=1, agent="codex", request_id="r"), NOW)
    write(redis_server, ("SET", "s:bad", "x"))
    assert [one.session for one in await store.sessions(NOW, agent="codex")] == ["good"]
    assert (await store.sessions(NOW, agent="codex", limit=0)).number == 1
    assert store.health.sentence is None
    await store.close()


async def test_breakers_and_events_that_make_no_sense(
    store: RedisStore, redis_server: RedisServer
) -> None:
    await save_breaker(store, "fast", BreakerState(1))
    await add_events(store, [{"time": NOW, "kind": "k", "session": "a"}])
    for state in ("x", "[]", '["a", 1, 2]', "[null, 1, 2]"):
        write(redis_server, ("HSET", "breakers", f"tier {state}", state))
    for body in ("x", "[]", "{}", '{"time": "x", "kind": "k", "session": "a"}'):
        write(redis_server, ("XADD", "events", "*", "time", "1", "body", body))
    write(redis_server, ("XADD", "events", "*", "a", "b"))
    assert await store.breakers() == {"fast": BreakerState(1)}
    for query in (EventQuery(), EventQuery(after=0)):
        assert len(await store.events(query)) == 1
    await store.close()


async def test_others_are_counted_beside_it(store: RedisStore, redis_server: RedisServer) -> None:
    write(redis_server, ("SET", "s:bad", "x"), ("SET", "p:session:bad", "x"))
    limit = Limit("session:good", None, rolling=False)
    await settle(store, "t", {limit: 7}, NOW)
    assert (await store.load("good", NOW)).used == 7
    await store.close()
