"""The hours' counters, whichever backend keeps them."""

from __future__ import annotations

import asyncio

from mlx_stack_proxy.state.hourly import MOST_COUNTERS, HourKey, hour_of
from mlx_stack_proxy.state.store import Change, EventQuery, Limit, Settlement, Sticky, Store
from tests.state.conftest import NOW, MakeStore
from tests.support.storing import add_counts, add_events, commit

HOUR = hour_of(NOW)
CODEX = HourKey(HOUR, "codex", "fast")


async def test_deltas_are_added_up(store: Store) -> None:
    await add_counts(store, {CODEX: {"requests": 1, "model_seconds": 0.25, "failed:timeout": 1}})
    await add_counts(store, {CODEX: {"requests": 2, "model_seconds": 0.5}})
    found = await store.counts(HOUR, HOUR)
    assert found == {CODEX: {"requests": 3, "model_seconds": 0.75, "failed:timeout": 1}}


async def test_a_delta_may_take_something_back(store: Store) -> None:
    await add_counts(store, {CODEX: {"turns": 1}})
    await add_counts(store, {CODEX: {"turns": -1, "client_left": 1}})
    assert await store.counts(HOUR, HOUR) == {CODEX: {"turns": 0, "client_left": 1}}


async def test_hours_agents_and_tiers_are_told_apart(store: Store) -> None:
    keys = [CODEX, CODEX._replace(tier=""), CODEX._replace(agent="", tier="other")]
    keys.append(CODEX._replace(hour=HOUR + 1))
    await add_counts(store, {key: {"requests": number} for number, key in enumerate(keys, 1)})
    found = await store.counts(HOUR, HOUR + 5)
    assert [found[key]["requests"] for key in keys] == [1, 2, 3, 4]
    assert list(await store.counts(HOUR + 1, HOUR + 1)) == [keys[3]]
    assert await store.counts(HOUR + 2, HOUR + 5) == {}


async def test_many_add_at_once(store: Store) -> None:
    await asyncio.gather(*(add_counts(store, {CODEX: {"requests": 1}}) for _ in range(50)))
    assert (await store.counts(HOUR, HOUR))[CODEX]["requests"] == 50


async def test_too_many_labels_of_a_name_are_one(store: Store) -> None:
    await add_counts(store, {CODEX: {f"calls:tool{n}": 1 for n in range(MOST_COUNTERS + 5)}})
    await add_counts(store, {CODEX: {"requests": 1}})
    found = (await store.counts(HOUR, HOUR))[CODEX]
    assert len(found) == MOST_COUNTERS + 2
    assert found["calls:other"] == 5
    assert found["requests"] == 1


async def test_events_are_counted_without_a_limit(store: Store) -> None:
    event = {"time": NOW, "kind": "escalated", "session": "a", "detail": {}}
    await add_events(store, [event] * 7 + [{**event, "kind": "exhausted"}])
    assert await store.count_events(EventQuery(kind="escalated", limit=2)) == 7
    assert await store.count_events(EventQuery(since=NOW + 1)) == 0


async def test_the_file_has_them_after_the_process(make_sqlite: MakeStore) -> None:
    before = CODEX._replace(hour=HOUR - 1)
    for _ in range(2):
        store = make_sqlite()
        await store.open()
        await add_counts(store, {CODEX: {"requests": 1}, before: {"requests": 4}})
        await store.close()
    store = make_sqlite()
    await store.open()
    assert await store.counts(HOUR - 9, HOUR) == {CODEX: {"requests": 2}, before: {"requests": 8}}
    await store.close()


async def test_an_exchange_adds_them_with_its_session(store: Store) -> None:
    hour = Limit("hour", None, rolling=True)
    for number in (1, 2):
        counts = {CODEX: {"requests": 1, "model_seconds": 0.5}}
        sticky = {"auto": Sticky("standard", NOW + 300)}
        delta = Change("", 1, "fast", sticky, counts=counts)
        settlement = Settlement(f"t{number}", {hour: 10}) if number == 2 else None
        await commit(store, "a", delta, NOW, settlement)
    assert await store.counts(HOUR, HOUR) == {CODEX: {"requests": 2, "model_seconds": 1.0}}
    state = await store.load("a", NOW, [hour])
    assert (state.turns, state.counts, state.sticky) == (2, {"hour": 10}, sticky)
