"""What changes while a request waits: the tier's state, the time that is left."""

from __future__ import annotations

import asyncio

import httpx

from tests.server.asking import ask
from tests.server.climbing import asked, by_model, three_tiers
from tests.server.conftest import StartProxy
from tests.server.counting import session
from tests.server.polling import until_metric
from tests.server.test_escalation_breaker import degrade, with_breaker
from tests.support.clock import Clock
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait

FAILS = b"HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
ONE_PLACE = {"tiers.fast.max_concurrency": 1}


async def ask_behind(
    proxy: RunningProxy, upstream: ScriptedServer, waiting: int, **headers: str
) -> list[asyncio.Task[httpx.Response]]:
    """One request that runs on `fast`, and others that wait for its place."""
    tasks = [asyncio.create_task(ask(proxy, session(0)))]
    await upstream.next_call()
    for number in range(1, waiting + 1):
        tasks.append(asyncio.create_task(ask(proxy, {**session(number), **headers})))
        await until_metric(proxy, "mlx_stack_queue_depth", number, tier="fast")
    return tasks


async def test_who_waits_for_a_tier_that_fails_goes_to_the_next(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, ONE_PLACE, degrade={"failures": 1})
    gate = asyncio.Event()
    late = Reply.raw(Wait(gate), FAILS)
    upstream.always(by_model(fast=late))
    tasks = await ask_behind(proxy, upstream, waiting=3)
    gate.set()
    first, *others = await asyncio.gather(*tasks)
    assert first.headers["x-mlx-stack-escalation-reason"] == "server_error"
    assert asked(upstream).count("fast") == 1, "nobody else has to find out"
    for other in others:
        assert other.headers["x-mlx-stack-tier"] == "standard"
        assert other.headers["x-mlx-stack-escalation-reason"] == "tier_degraded"
        assert other.headers["x-mlx-stack-attempts"] == "1"


async def test_a_probe_is_claimed_when_its_call_begins(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Of requests that arrive in the same moment, when the tier may be tried again, one tries."""
    clock = Clock()
    proxy = await with_breaker(upstream, start_proxy, clock)
    await degrade(upstream, proxy)
    clock.now += 30
    answers = await asyncio.gather(*(ask(proxy, session(number)) for number in range(8)))
    assert asked(upstream).count("fast") == 1
    assert {answer.headers["x-mlx-stack-tier"] for answer in answers} == {"standard"}
    upstream.always(by_model())
    clock.now += 60  # doubled, and by that one probe only
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"
