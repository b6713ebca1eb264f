"""What changes while a request waits: the tier's state, the time that is left."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.faults.catalogue import good
from tests.server.asking import ask, checked_error
from tests.server.climbing import DEAD, asked, by_model, three_tiers
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


async def test_the_last_one_standing_is_waited_for(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**ONE_PLACE, "reliability.escalation.degrade": {"failures": 1}})
    gate = asyncio.Event()
    late = Reply.raw(Wait(gate), FAILS)
    upstream.will(late, good(False))
    first, second = await ask_behind(proxy, upstream, waiting=1)
    gate.set()
    checked_error(await first, 502, "all_tiers_failed")
    assert (await second).headers["x-mlx-stack-tier"] == "fast"


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


@pytest.mark.parametrize("limit", ["the client's", "ours"])
async def test_nothing_begins_after_a_wait_that_was_too_long(
    limit: str, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    rules = {"exchange_timeout": 0.3} if limit == "ours" else {}
    header = {} if limit == "ours" else {"x-stainless-read-timeout": "0.3"}
    proxy = await three_tiers(upstream, start_proxy, ONE_PLACE, **rules)
    gate = asyncio.Event()
    upstream.always(by_model(fast=Reply.sse(Wait(gate), *good(False).pieces)))
    first, second = await ask_behind(proxy, upstream, waiting=1, **header)
    # Longer than the second may take; nothing else can tell that this time has passed.
    asyncio.get_running_loop().call_later(0.5, gate.set)
    error = checked_error(await second, 503, "tier_busy")
    assert "attempts" not in error, "none was made"
    assert (await first).status_code == 200
    assert asked(upstream) == ["fast"]


async def test_a_full_queue_after_a_failure_is_still_a_full_queue(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    changes = {f"tiers.{tier}.queue_timeout": 0.2 for tier in ("standard", "longctx")}
    changes |= {f"tiers.{tier}.max_concurrency": 1 for tier in ("standard", "longctx")}
    proxy = await three_tiers(upstream, start_proxy, changes)
    gate = asyncio.Event()
    slow = Reply.sse(Wait(gate), *good(False).pieces)
    upstream.always(by_model(fast=DEAD, standard=slow, longctx=slow))
    running = [
        asyncio.create_task(ask(proxy, session(number), model=tier))
        for number, tier in enumerate(("standard", "longctx"))
    ]
    for _ in running:
        await upstream.next_call()
    response = await ask(proxy, session(9))
    error = checked_error(response, 503, "tier_busy")
    assert [one["tier"] for one in error["attempts"]] == ["fast"]
    assert response.headers["retry-after"]
    gate.set()
    assert {one.status_code for one in await asyncio.gather(*running)} == {200}
