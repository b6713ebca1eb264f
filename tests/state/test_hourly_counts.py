"""The hours' counters, whichever backend keeps them."""

from __future__ import annotations

from mlx_stack_proxy.state.hourly import MAX_COUNTERS, HourKey, hour_of
from mlx_stack_proxy.state.store import EventQuery, Store
from tests.state.conftest import NOW
from tests.support.storing import add_counts, add_events

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


async def test_too_many_labels_of_a_name_are_one(store: Store) -> None:
    await add_counts(store, {CODEX: {f"calls:tool{n}": 1 for n in range(MAX_COUNTERS + 5)}})
    await add_counts(store, {CODEX: {"requests": 1}})
    found = (await store.counts(HOUR, HOUR))[CODEX]
    assert len(found) == MAX_COUNTERS + 2
    assert found["calls:other"] == 5
    assert found["requests"] == 1


async def test_events_are_counted_without_a_limit(store: Store) -> None:
    event = {"time": NOW, "kind": "escalated", "session": "a", "detail": {}}
    await add_events(store, [event] * 7 + [{**event, "kind": "exhausted"}])
    assert await store.count_events(EventQuery(kind="escalated", limit=2)) == 7
    assert await store.count_events(EventQuery(since=NOW + 1)) == 0
