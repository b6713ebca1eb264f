"""What ends a wait early: the client that leaves, and a time that is reached."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mlx_stack_proxy.engine import watch
from mlx_stack_proxy.engine.verdicts import UpstreamFailed, Verdict
from mlx_stack_proxy.engine.watch import ClientLeft, Watch
from tests.support.waiting import settled

TIMEOUT = UpstreamFailed("timeout", "nothing came")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BEGIN_SECONDS", 0.0)


class Client:
    """Messages as an ASGI server gives them."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> dict[str, Any]:
        return await self.messages.get()


class Times:
    """When something is due, and what is said then."""

    def __init__(self, due: float | None = None, verdict: Verdict | None = None) -> None:
        self.at = due
        self.verdict = verdict
        self.ticks: list[float] = []

    def due(self) -> float | None:
        return self.at

    def tick(self, now: float) -> Verdict | None:
        self.ticks.append(now)
        self.at = None
        return self.verdict


def started(client: Client, times: Times) -> Watch:
    found = Watch(client.receive)
    found.start(times.due, times.tick)
    return found


async def interrupted(one: Watch) -> Verdict:
    """Wait for ever, and say what ended it."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return one.interruption()
    raise AssertionError


async def test_a_client_that_leaves_interrupts() -> None:
    client = Client()
    one = started(client, Times())
    client.messages.put_nowait({"type": "http.request", "body": b""})  # no reason to stop
    client.leave()
    with pytest.raises(ClientLeft):
        await interrupted(one)
    assert one.client_left
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0  # the task can go on and clean up


async def test_a_time_that_is_reached_interrupts_with_its_verdict() -> None:
    times = Times(due=0.0, verdict=TIMEOUT)
    one = started(Client(), times)
    assert await interrupted(one) is TIMEOUT
    assert len(times.ticks) == 1
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    one.stop()


async def test_a_tick_without_a_verdict_does_not_interrupt() -> None:
    client, times = Client(), Times(due=0.0)
    one = started(client, times)
    await settled()
    client.leave()
    with pytest.raises(ClientLeft):
        await interrupted(one)
    assert len(times.ticks) == 1


async def test_a_time_moved_on_is_not_said_before_it_is_there() -> None:
    loop = asyncio.get_running_loop()
    times = Times(due=loop.time(), verdict=TIMEOUT)
    one = started(Client(), times)
    times.at = loop.time() + 3600  # bytes came; the timer itself stays where it was
    one._fire()
    await settled()
    assert times.ticks == []
    one.stop()


async def test_a_nearer_time_counts_after_rearming() -> None:
    loop = asyncio.get_running_loop()
    times = Times(due=loop.time() + 3600, verdict=TIMEOUT)
    one = started(Client(), times)
    await settled()
    times.at = 0.0
    one.rearm()
    assert await interrupted(one) is TIMEOUT
    one.stop()


async def test_after_the_end_nothing_interrupts() -> None:
    client, times = Client(), Times(due=0.0, verdict=TIMEOUT)
    one = started(client, times)
    one.stop()
    client.leave()
    await settled()
    assert not one.client_left and times.ticks == []


async def test_the_cancellation_of_another_stays_one() -> None:
    one = started(Client(), Times())
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    with pytest.raises(asyncio.CancelledError):
        one.interruption()
    one.stop()


async def test_an_interruption_under_way_arrives_when_asked_for() -> None:
    times = Times(due=0.0, verdict=TIMEOUT)
    one = started(Client(), times)
    one._begin()
    one._fire()  # the task is cancelled from here on, but has not noticed
    with pytest.raises(asyncio.CancelledError):
        await one.settle()
    assert one.interruption() is TIMEOUT
    await one.settle()  # nothing is left
    one.stop()
