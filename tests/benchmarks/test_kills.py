"""When the weak model's server is killed during the agents' tasks, and for how long it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.agents import kills
from benchmarks.agents.kills import AT, CALL, EVERY, Kills
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def looks_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "_LOOK_SECONDS", 0)


async def turns() -> None:
    """Of the loop: so many that whoever only waits for one has had several."""
    for _ in range(20):
        await asyncio.sleep(0)


def made(kill: Callable[[str], bool], down: float = 0.2) -> tuple[Kills, Any]:
    relay = SimpleNamespace(attempts=[], down=set())
    return Kills(relay, "fast", kill, down), relay  # type: ignore[arg-type]


async def test_a_server_of_ours_is_killed_at_the_second_call() -> None:
    killed: list[str] = []

    def kill(model: str) -> bool:
        killed.append(model)
        return True

    some, relay = made(kill)
    async with some.during(AT):
        relay.attempts.append("first")
        await turns()
        assert not killed, "its first call is let alone"
        relay.attempts.extend(["another"] * (CALL - 1))
        await until(lambda: bool(killed))
    assert (killed, some.happened, relay.down) == (["fast"], True, set())
    async with some.during(AT + 1):
        await turns()
    assert (killed, some.happened) == (["fast"], False)


async def test_one_that_is_not_ours_plays_dead_for_its_time_however_short_the_tasks() -> None:
    some, relay = made(lambda model: False)
    async with some.during(AT):
        relay.attempts.extend(["first", "second"])
        await until(lambda: some.happened)
    for task in range(AT + 1, AT + EVERY - 1):  # each is over in no time
        async with some.during(task):
            assert relay.down == {"fast"}
    await until(lambda: not relay.down)


async def test_it_is_up_again_when_all_is_over() -> None:
    some, relay = made(lambda model: False, down=60)
    async with some.during(AT):
        relay.attempts.extend(["first", "second"])
        await until(lambda: some.happened)
    await some.close()
    assert relay.down == set()
