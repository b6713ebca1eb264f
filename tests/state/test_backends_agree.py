"""Whatever is asked of them, in whatever order: all backends answer alike."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlx_stack_proxy.state.redis import RedisStore
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Change, EventQuery, Limit, Settlement, Sizes, Sticky, Store
from tests.state.conftest import MAX_SESSIONS, NOW, TTL, MakeStore, keep_house
from tests.support.redis_server import RedisServer
from tests.support.storing import add_events, commit, settle

SIZES = Sizes(MAX_SESSIONS, TTL, 1e9, 10_000)  # the events' times are far apart
NAMES = st.sampled_from("abcdefg")
TOKENS = st.integers(0, 60)
LEAST = st.none() | st.integers(1, 60)
SCOPES = [
    *(Limit(f"session:{name}", most, False) for name in "ab" for most in (None, 100)),
    *(Limit(scope, most, True) for scope in ("hour", "key:k") for most in (None, 150)),
    Limit("session:a:tier:fast", 50, False),
    Limit("session:a:estimated", None, False),
]
LIMITS = st.lists(st.sampled_from(SCOPES), max_size=3, unique_by=lambda limit: limit.scope)
STICKY = st.dictionaries(
    st.sampled_from(["auto", "fast"]),
    st.builds(Sticky, st.sampled_from(["standard", "x y"]), st.floats(NOW, NOW + 900)),
)
DELTAS = st.builds(
    Change,
    turns=st.integers(0, 3),
    tier=st.sampled_from(["", "fast", "standard"]),
    sticky=STICKY,
)
AMOUNTS = st.builds(
    lambda limits, tokens: dict(zip(limits, tokens, strict=False)),
    LIMITS,
    st.lists(TOKENS, min_size=3, max_size=3),
)
SETTLEMENTS = st.none() | st.builds(Settlement, NAMES, AMOUNTS)
SETTLE = st.tuples(st.just("settle"), NAMES, AMOUNTS)


def reserve(seconds: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just("reserve"), NAMES, LIMITS, TOKENS, seconds, LEAST)


CALLS = st.one_of(
    st.tuples(st.just("load"), NAMES, LIMITS),
    st.tuples(st.just("commit"), NAMES, DELTAS, SETTLEMENTS),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("house")),
    st.tuples(st.just("events"), st.sampled_from("ab")),
    reserve(st.floats(0, 400)),
    SETTLE,
)
# Which of two sessions of the same moment goes first is nobody's promise: the clock moves on.
ONWARDS = st.floats(0.001, 90) | st.floats(0.001, 2 * TTL)
STEPS = st.lists(st.tuples(ONWARDS, CALLS), max_size=40)
# When a reservation ends whose clock jumped is nobody's promise either: these last.
BUDGETS = reserve(st.just(1e6)) | SETTLE
JUMPS = st.lists(st.tuples(ONWARDS | st.floats(-4000, 0), BUDGETS), min_size=3, max_size=20)


clock = [NOW]  # of both stores' housekeeping


async def do(store: Store, call: tuple[Any, ...], now: float) -> Any:
    match call:
        case ("load", name, limits):
            return await store.load(name, now, limits)
        case ("commit", name, delta, settlement):
            return await commit(store, name, delta, now, settlement)
        case ("delete", name):
            await store.delete(name)
            return (
                None  # whether a session that was idle for too long was known is nobody's promise
            )
        case ("reserve", ticket, limits, tokens, wait, least):
            return await store.reserve(ticket, limits, tokens, now, now + wait, least=least)
        case ("settle", ticket, amounts):
            return await settle(store, ticket, amounts, now)
        case ("house",):
            await keep_house(store)
            return None
        case ("events", session):
            await add_events(store, [{"time": now, "kind": "k", "session": session}])
            return await store.events(EventQuery(session=session, limit=3))


async def answers(store: Store, steps: list[tuple[float, Any]]) -> list[Any]:
    await store.open()
    found = []
    now = NOW
    for wait, call in steps:
        clock[0] = now = round(now + wait, 3)
        answer = await do(store, call, now)
        # How long to wait is known to the millisecond.
        if hasattr(answer, "resets_in"):
            answer = (answer.limit, answer.used, answer.waits_for_others, round(answer.resets_in))
        found.append((call[0], answer))
    found.append(("used", [(await store.load(name, now)).used for name in "abcdefg"]))
    await store.close()
    return found


@pytest.fixture(scope="module")
def make_redis(redis_server: RedisServer) -> MakeStore:
    """With names of its own for each store, in the same hash slot."""
    numbers = itertools.count()
    return lambda: RedisStore(
        redis_server.url, SIZES, lambda: clock[0], prefix=f"{{mlx-stack}}:{next(numbers)}"
    )


def check(make_redis: MakeStore, steps: list[tuple[float, Any]]) -> None:
    expected = asyncio.run(answers(SqliteStore(None, SIZES, lambda: clock[0]), steps))
    assert asyncio.run(answers(make_redis(), steps)) == expected


@given(STEPS)
@settings(max_examples=50)
def test_all_backends_answer_alike(make_redis: MakeStore, steps: list[tuple[float, Any]]) -> None:
    check(make_redis, steps)


@given(JUMPS)
@settings(max_examples=50)
def test_all_backends_count_alike_when_the_clock_jumps(
    make_redis: MakeStore, steps: list[tuple[float, Any]]
) -> None:
    check(make_redis, steps)
