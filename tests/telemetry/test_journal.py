"""Events and breakers are written while exchanges run, in order, together; failures are logged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from mlx_stack_proxy.state.hourly import MAX_AGENTS, HourKey
from mlx_stack_proxy.state.store import BreakerState, Change, EventQuery, StoreError
from mlx_stack_proxy.telemetry.journal import Journal
from tests.support.waiting import until


class SlowStore:
    """Writes when it is let; what it was given, call by call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.let = asyncio.Event()
        self.fails = False

    async def write(self, change: Change, now: float) -> Mapping[str, int]:
        await self.let.wait()
        if self.fails:
            raise StoreError("full")
        failures = {tier: state.failures for tier, state in change.breakers.items()}
        self.calls.append(failures or [event.kind for event in change.events])
        return {}


def event(kind: str) -> dict[str, Any]:
    return {"time": 1.0, "kind": kind, "session": ""}


@pytest.fixture
async def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def journal(store: SlowStore) -> Journal:
    return Journal(store, lambda: 1.0)  # type: ignore[arg-type]


async def test_what_comes_while_one_call_runs_is_the_next_one(
    journal: Journal, store: SlowStore
) -> None:
    journal.add([event("a"), event("b")])
    journal.add([event("c")])
    waiting = asyncio.create_task(journal.written())
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the first call begins
    journal.add([event("d")])
    journal.add([])
    store.let.set()
    await waiting
    await journal.written()
    assert store.calls == [["a", "b", "c"], ["d"]]
    await journal.written()  # there is nothing to wait for


async def test_nobody_waits_for_what_others_record_meanwhile() -> None:
    class BusyProxy(SlowStore):
        """During each write another exchange records something."""

        async def write(self, change: Change, now: float) -> Mapping[str, int]:
            await asyncio.sleep(0)
            if len(self.calls) < 100:
                own.add([event("of another")])
            return await super().write(change, now)

    store = BusyProxy()
    store.let.set()
    own = Journal(store, lambda: 1.0)  # type: ignore[arg-type]
    own.add([event("a")])
    first, second = (asyncio.create_task(own.written()) for _ in range(2))
    await first
    await second
    assert store.calls[0] == ["a"] and len(store.calls) <= 2
    await until(lambda: len(store.calls) > 2)  # the rest is written soon, all the same


async def test_an_exchange_takes_along_what_waits(journal: Journal, store: SlowStore) -> None:
    journal.add([event("a")])
    journal.count({HourKey(1, "codex", "fast"): {"requests": 1}})
    change = journal.take(session="s", turns=1)
    assert (change.session, change.turns, len(change.events)) == ("s", 1, 1)
    assert change.counts == {HourKey(1, "codex", "fast"): {"requests": 1}}
    await journal.written()
    assert store.calls == [], "nothing is left for a write of the journal's own"


async def test_what_no_exchange_takes_is_written_soon(journal: Journal, store: SlowStore) -> None:
    store.let.set()
    journal.add([event("a")])
    await until(lambda: store.calls == [["a"]])


async def test_too_many_agents_of_an_hour_are_one(journal: Journal) -> None:
    for number in range(MAX_AGENTS + 3):
        journal.count({HourKey(1, f"agent-{number}", "fast"): {"requests": 1}})
    journal.count({HourKey(2, "agent-102", "fast"): {"requests": 1}})
    assert journal.counted[HourKey(1, "other", "fast")] == {"requests": 3}
    counts = journal.take().counts
    assert counts == journal.counted
    assert len({key.agent for key in counts if key.hour == 1}) == MAX_AGENTS + 1
    assert counts[HourKey(2, "agent-102", "fast")] == {"requests": 1}


async def test_of_a_breaker_only_the_last_state_is_written(
    journal: Journal, store: SlowStore
) -> None:
    store.let.set()
    for failures in (1, 2, 3):
        journal.set_breaker("fast", BreakerState(failures))
    await journal.written()
    assert store.calls == [{"fast": 3}]


async def test_a_store_that_fails_is_told_and_the_next_events_are_kept(
    journal: Journal, store: SlowStore
) -> None:
    told: list[str] = []
    journal.on_failure = lambda error: told.append(str(error))
    store.fails = True
    store.let.set()
    journal.set_breaker("fast", BreakerState(1))
    journal.add([event("lost")])
    await journal.written()
    store.fails = False
    journal.add([event("kept")])
    await journal.written()
    assert (told, store.calls) == (["full"], [["kept"]])


async def test_who_gives_up_waiting_takes_nothing_along(journal: Journal, store: SlowStore) -> None:
    journal.add([event("a")])
    waiting = asyncio.create_task(journal.written())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    store.let.set()
    await journal.written()
    assert store.calls == [["a"]]


async def test_a_fault_of_ours_keeps_nobody_waiting(journal: Journal, store: SlowStore) -> None:
    def fault(_: StoreError) -> None:
        raise KeyError("a bug")

    store.let.set()
    store.fails = True
    journal.on_failure = fault
    journal.add([event("a")])
    async with asyncio.timeout(5):
        await journal.written()
        store.fails = False
        journal.add([event("b")])
        await journal.written()
    assert store.calls == [["b"]]


async def test_an_event_that_is_no_json_harms_no_other(journal: Journal, store: SlowStore) -> None:
    store.let.set()
    journal.add([event("a"), {**event("bad"), "detail": object()}, event("b")])
    await journal.written()
    assert store.calls == [["a", "b"]]
    assert [one["kind"] for _, one in journal.remembered(EventQuery())] == ["a", "b"]
