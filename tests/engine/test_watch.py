"""Interrupting a wait: because the client leaves, or because a time limit is reached."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from mlx_stack_proxy.engine import watch
from mlx_stack_proxy.engine.verdicts import Failure, Verdict
from mlx_stack_proxy.engine.watch import ClientLeft, Watch
from tests.support.waiting import settled, until

TIMEOUT = Failure("timeout", "nothing came")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BEGIN_SECONDS", 0.0)
    monkeypatch.setattr(watch, "LEAST_SECONDS", 0.0)


class Client:
    """Messages as an ASGI server gives them."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})

    async def receive(self) -> dict[str, Any]:
        return await self.messages.get()


class Looking(Watch):
    """Gives one of ``found`` at each look, and then nothing more."""

    def __init__(self, client: Client, *found: Verdict | float) -> None:
        super().__init__(client.receive)
        self.found = list(found)
        self.looks = 0

    def look(self, now: float) -> Verdict | float:
        self.looks += 1
        return self.found.pop(0) if self.found else math.inf


def started(client: Client, *found: Verdict | float) -> Looking:
    one = Looking(client, *found)
    one.start()
    return one


async def interrupted(one: Watch) -> Verdict:
    """Wait for ever, and say what ended it."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return one.interruption()
    raise AssertionError


async def test_a_client_that_leaves_interrupts() -> None:
    client = Client()
    one = started(client)
    client.messages.put_nowait({"type": "http.request", "body": b""})  # no reason to stop
    client.leave()
    with pytest.raises(ClientLeft):
        await interrupted(one)
    assert one.client_left
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0  # the task can go on and clean up


async def test_a_time_that_is_reached_interrupts_with_its_verdict() -> None:
    one = started(Client(), 0.0, TIMEOUT)
    assert await interrupted(one) is TIMEOUT
    assert one.looks == 2
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    one.stop()


async def test_after_the_end_nothing_interrupts() -> None:
    client = Client()
    one = started(client, TIMEOUT)
    one.stop()
    client.leave()
    await settled()
    assert not one.client_left and not one.looks


async def test_the_cancellation_of_another_stays_one() -> None:
    one = started(Client())
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    with pytest.raises(asyncio.CancelledError):
        one.interruption()
    one.stop()


async def test_an_interruption_under_way_arrives_when_asked_for() -> None:
    one = started(Client(), TIMEOUT)
    one._on_timer()  # the task is cancelled from here on, but has not noticed
    with pytest.raises(asyncio.CancelledError):
        await one.settle()
    assert one.interruption() is TIMEOUT
    await one.settle()  # nothing is left
    one.stop()


async def test_it_looks_only_when_something_may_be_due() -> None:
    loop = asyncio.get_running_loop()
    one = started(Client(), loop.time() + 3600)
    await until(lambda: one.looks == 1)
    await settled()
    assert one.looks == 1, "the next look is in an hour"
    one.look_soon()
    await until(lambda: one.looks == 2)
    await settled()
    assert one.looks == 2, "nothing more is due"
    one.stop()
    one.look_soon()
    assert one._timer is None


async def test_a_look_that_fails_is_followed_by_another() -> None:
    one = started(Client())

    def failing(now: float) -> float:
        raise ValueError

    one.look = failing  # type: ignore[method-assign]
    with pytest.raises(ValueError):
        one._on_timer()
    assert one._timer is not None
    one.stop()
