"""The simulation: its clock, its servers against queueing theory, the real rules in it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from benchmarks.simulation import virtual_time
from benchmarks.simulation.simulate import Outcome, simulate
from benchmarks.simulation.world import (
    APART,
    FAST,
    SILENCE,
    STANDARD,
    TWO_TIERS,
    Machine,
    Server,
    Tier,
    World,
    settings,
)

PERFECT = Tier(2.0, bad_easy=0.0, bad_hard=0.0, speed_up=APART)


def test_the_clock_jumps_to_what_comes_next() -> None:
    async def work() -> list[float]:
        clock = asyncio.get_running_loop().time
        found = [clock()]
        await asyncio.sleep(3600)
        found.append(clock())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        return [*found, clock()]

    assert virtual_time.run(work()) == pytest.approx([0, 3600, 3660], abs=0.1)


@pytest.mark.parametrize(
    ("speed_up", "shared", "ends"),
    [
        (APART, False, [1, 2, 2]),  # nobody slows anybody down
        ((1.0,), False, [2, 3, 2]),  # two share one server, the third has its own
        ((1.0,), True, [4, 5, 4]),  # and now all are on one machine
    ],
)
def test_servers_share_what_there_is(
    speed_up: tuple[float, ...], shared: bool, ends: list[float]
) -> None:
    async def work() -> list[float]:
        machine = Machine(shared=shared)
        tier = replace(PERFECT, speed_up=speed_up)
        one, other = Server(tier, machine), Server(tier, machine)

        async def job(server: Server, seconds: float) -> float:
            await server.work(seconds)
            return asyncio.get_running_loop().time()

        return list(await asyncio.gather(job(one, 1), job(one, 2), job(other, 2)))

    assert virtual_time.run(work()) == pytest.approx(ends, abs=0.01)


def run(world: World, **escalation: object) -> Outcome:
    return simulate(world, settings(world.tiers, **escalation))


def test_the_same_seed_gives_the_same_night() -> None:
    world = World(TWO_TIERS, agents=2, seconds=300)
    one, two = run(world), run(world)
    assert (one.right, one.seconds) == (two.right, two.seconds)
    assert run(replace(world, seed=2)).seconds != one.seconds


def test_escalation_serves_the_hard_turns() -> None:
    world = World(TWO_TIERS, agents=2, seconds=900)
    alone, both = run(world, enabled=False), run(world)
    assert alone.errors["tool_validation_failed"] > 0
    assert both.share_right > alone.share_right
    assert both.served["standard"] > 0 == alone.served["standard"]


def test_a_dead_tier_is_taken_out_and_comes_back() -> None:
    dead = replace(FAST, outages=((200.0, 260.0),))
    world = World({"fast": dead, "standard": STANDARD}, agents=4, seconds=500)
    found = run(world, sticky_seconds=0)
    assert found.degraded["fast"] >= 30
    assert found.share_right > 0.99
    never = run(World(TWO_TIERS, agents=4, seconds=500))
    assert not never.degraded


def test_a_tier_that_says_nothing_is_waited_for_then_left_and_in_the_end_taken_out() -> None:
    silent = replace(FAST, stalls=((200.0, 320.0),))
    world = World({"fast": silent, "standard": STANDARD}, agents=8, seconds=500, shared=False)
    found = run(world, sticky_seconds=0)
    assert found.degraded["fast"] >= 30
    assert found.share_right == 1.0
    assert max(found.seconds) >= SILENCE
    never = run(world, sticky_seconds=0, degrade={"failures": 1000, "cooldown_seconds": 30})
    assert never.attempts["fast"] > found.attempts["fast"]
