"""Interrupting a wait: because the client leaves, or because a time limit is reached."""

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
    monkeypatch.setattr(watch, "TICK_SECONDS", 0.0)


class Client:
    """Messages as an ASGI server gives them."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> dict[str, Any]:
        return await self.messages.get()


class Times:
    """What is said at each look."""

    def __init__(self, *said: Verdict | None) -> None:
        self.said = list(said)
        self.ticks: list[float] = []

    def tick(self, now: float) -> Verdict | None:
        self.ticks.append(now)
        return self.said.pop(0) if self.said else None


def started(client: Client, times: Times) -> Watch:
    found = Watch(client.receive)
    found.start(times.tick)
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
    times = Times(None, TIMEOUT)
    one = started(Client(), times)
    assert await interrupted(one) is TIMEOUT
    assert len(times.ticks) == 2
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    one.stop()


async def test_after_the_end_nothing_interrupts() -> None:
    client, times = Client(), Times(TIMEOUT)
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
    one = started(Client(), Times(TIMEOUT))
    one._begin()  # the task is cancelled from here on, but has not noticed
    with pytest.raises(asyncio.CancelledError):
        await one.settle()
    assert one.interruption() is TIMEOUT
    await one.settle()  # nothing is left
    one.stop()
