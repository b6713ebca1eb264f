"""Waiting for a slot: for as long as is allowed, and giving it back in any case."""

from __future__ import annotations

import asyncio

import pytest

from mlx_stack_proxy.escalation.fair_queue import Ticket
from mlx_stack_proxy.escalation.tier_queue import QueueTimeout, TierQueue, TierQueues
from mlx_stack_proxy.settings import TierSettings
from tests.support.waiting import settled


def queue(slots: int = 1, timeout: float = 60) -> TierQueue:
    return TierQueue(TierSettings(model="m", max_concurrency=slots, queue_timeout=timeout))


def waiting(line: TierQueue, *sessions: str) -> list[asyncio.Task[Ticket]]:
    return [asyncio.create_task(line.enter(session)) for session in sessions]


async def test_a_free_slot_is_there_at_once_and_goes_to_the_next() -> None:
    line = queue(slots=2)
    first, second = await line.enter("a"), await line.enter("a")
    (third,) = waiting(line, "b")
    await settled()
    assert (line.in_use, line.waiting, third.done()) == (2, 1, False)
    line.leave(first)
    assert (await third).granted
    assert (line.in_use, line.waiting) == (2, 0)
    line.leave(second)
    line.leave(await third)
    assert (line.in_use, line.waiting) == (0, 0)


async def test_a_wait_that_takes_too_long() -> None:
    line = queue(timeout=0)
    holder = await line.enter("a")  # without a wait there is no limit
    with pytest.raises(QueueTimeout) as caught:
        await line.enter("b")
    assert caught.value.seconds == 0
    assert str(caught.value) == "no free place within 0 s"
    assert (line.in_use, line.waiting) == (1, 0)
    line.leave(holder)
    line.leave(await line.enter("b"))
    assert line.in_use == 0


async def test_one_that_leaves_in_the_moment_of_its_turn_hands_it_on() -> None:
    line = queue()
    holder = await line.enter("a")
    second, third = waiting(line, "b", "c")
    await settled()
    line.leave(holder)  # the slot is b's from here on, though b has not run yet
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await third).session == "c"
    assert (line.in_use, line.waiting) == (1, 0)


async def test_a_slot_that_comes_with_the_timeout_is_taken() -> None:
    line = queue(timeout=0)
    holder = await line.enter("a")
    loop = asyncio.get_running_loop()
    # The timeout is due when the loop runs next; the slot comes in the same round.
    loop.call_soon(line.leave, holder)
    ticket = await line.enter("b")
    assert ticket.granted
    assert line.in_use == 1


# Other limits, while requests run and wait


def tier(slots: int = 1, local: bool = True) -> TierSettings:
    return TierSettings(model="m", max_concurrency=slots, local=local)


async def test_other_tiers_leave_what_runs_where_it_is() -> None:
    queues = TierQueues({"fast": tier(), "gone": tier()})
    fast, gone = queues["fast"], queues["gone"]
    assert fast is not None and gone is not None
    holders = [await fast.enter("a"), await gone.enter("a")]
    waits = waiting(fast, "b") + waiting(gone, "b")
    await settled()
    queues.adapt({"fast": tier(2), "new": tier()})
    assert (await waits[0]).granted
    assert queues.readings() == [("fast", 2, 0), ("new", 0, 0)]
    assert queues["gone"] is gone  # for exchanges that began with it
    assert queues["other-model"] is None
    gone.leave(holders[1])
    assert (await waits[1]).granted
    queues.adapt({"gone": tier(3)})
    assert queues.readings() == [("gone", 1, 0)]


async def test_a_tier_that_moves_to_the_cloud_is_not_held_to_one_request() -> None:
    queues = TierQueues({"fast": tier(2), "other": tier(2)})
    before = queues["fast"]
    queues.shed(True)
    queues.adapt({"fast": tier(2, local=False), "other": tier(2)})
    after = queues["fast"]
    assert after is not None and after is not before
    assert [(await after.enter("a")).granted, (await after.enter("b")).granted] == [True, True]
    queues.adapt({"fast": tier(2), "other": tier(2)})
    back = queues["fast"]
    assert back is not None
    await back.enter("a")
    (waits,) = waiting(back, "b")
    await settled()
    assert not waits.done()
    queues.shed(False)
    assert (await waits).granted


async def test_another_longest_wait_is_for_those_who_come() -> None:
    line = queue(timeout=60)
    await line.enter("a")
    (old,) = waiting(line, "b")
    await settled()
    line.adapt(TierSettings(model="m", max_concurrency=1, queue_timeout=0))
    with pytest.raises(QueueTimeout):
        await line.enter("c")
    assert not old.done()
    old.cancel()
