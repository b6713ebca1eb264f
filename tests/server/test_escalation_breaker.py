"""A tier whose server fails again and again is taken out, probed, and comes back.

When a server that was gone is back: tests/escalation/test_recovery.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.driver import time_limits
from mlx_stack_proxy.escalation import recovery
from mlx_stack_proxy.state.store import EventQuery
from tests.server.asking import ask
from tests.server.climbing import CHAIN, DEAD, asked, by_model, settings
from tests.server.conftest import StartProxy
from tests.server.counting import session
from tests.server.polling import is_degraded, metric, until_metric
from tests.support.clock import Clock
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer, Wait
from tests.support.waiting import until

FAILURES, COOLDOWN = 5, 30.0
ONE_FAILURE = {"failures": 1}


@pytest.fixture
async def proxy(three_tiers: StartProxy, clock: Clock) -> RunningProxy:
    rules = {"failures": FAILURES, "cooldown_seconds": COOLDOWN}
    return await three_tiers(wall_clock=clock, degrade=rules, sticky_seconds=0)


async def degrade(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    """Five failures of `fast`, one a request."""
    upstream.always(by_model(fast=DEAD))
    for number in range(FAILURES):
        response = await ask(proxy)
        assert response.headers["x-mlx-stack-escalation-reason"] == "server_error", number
    assert await is_degraded(proxy)
    upstream.calls.clear()


async def events(proxy: RunningProxy, kind: str) -> list[Mapping[str, Any]]:
    return [event for _, event in await proxy.services.store.events(EventQuery(kind=kind))]


async def states(proxy: RunningProxy) -> list[str]:
    ready = await proxy.client.get("/ready")
    assert ready.status_code == 200
    return [tier["state"] for tier in ready.json()["tiers"].values()]


async def test_it_is_gone_past_told_of_and_back_after_its_cool_down(
    proxy: RunningProxy, clock: Clock
) -> None:
    await degrade(proxy.upstream, proxy)
    assert await states(proxy) == ["degraded", "ok", "ok"]
    (degraded,) = await events(proxy, "tier_degraded")
    assert (degraded["tier"], degraded["detail"]) == ("fast", {"seconds": COOLDOWN})
    escalated = await events(proxy, "escalated")
    assert len(escalated) == FAILURES
    assert escalated[0]["detail"] == {"from": "fast", "to": "standard", "reason": "server_error"}
    assert escalated[0]["request_id"].startswith("req_")
    proxy.upstream.always(by_model())
    clock.now += COOLDOWN - 1
    response = await ask(proxy)
    assert asked(proxy.upstream) == ["standard"], "the next request goes past it"
    assert response.headers["x-mlx-stack-escalated-from"] == "fast"
    assert response.headers["x-mlx-stack-escalation-reason"] == "tier_degraded"
    assert response.headers["x-mlx-stack-attempts"] == "1"
    assert (await events(proxy, "escalated"))[-1]["detail"]["reason"] == "tier_degraded"
    moves = {"from_tier": "fast", "to_tier": "standard"}
    name = "mlx_stack_escalations_total"
    assert await metric(proxy, name, **moves, reason="server_error") == FAILURES
    assert await metric(proxy, name, **moves, reason="tier_degraded") == 1
    clock.now += 1
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"
    assert not await is_degraded(proxy)
    assert [event["tier"] for event in await events(proxy, "tier_recovered")] == ["fast"]
    assert await states(proxy) == ["ok", "ok", "ok"]


async def test_a_probe_whose_client_leaves_blocks_nobody(proxy: RunningProxy, clock: Clock) -> None:
    await degrade(proxy.upstream, proxy)
    clock.now += COOLDOWN
    proxy.upstream.always(by_model(fast=Reply.sse(SILENCE)))
    probe = asyncio.create_task(ask(proxy))
    await until_metric(proxy, "mlx_stack_in_flight", 1, tier="fast")
    probe.cancel()
    await until_metric(proxy, "mlx_stack_in_flight", 0, tier="fast")
    proxy.upstream.always(by_model())
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"


@pytest.mark.parametrize("silent", ["the server", "LiteLLM"])
async def test_silence_is_settled_by_asking_the_server_and_litellm(
    silent: str, three_tiers: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A LiteLLM that hangs before a server that is well is no fault of the tier's."""
    monkeypatch.setattr(time_limits, "HEALTH_SECONDS", 0.2)
    async with ScriptedServer() as server:
        changes = {
            "tiers.fast.first_token_timeout": 0.2,
            "tiers.fast.health_url": f"{server.url}/health",
        }
        proxy = await three_tiers(changes, degrade=ONE_FAILURE)
        asked_too = proxy.upstream if silent == "LiteLLM" else server
        path = "/health/liveliness" if silent == "LiteLLM" else "/health"
        asked_too.routes["GET", path] = Reply.raw(SILENCE)
        proxy.upstream.always(by_model(fast=Reply.sse(SILENCE)))
        response = await ask(proxy)
        assert response.headers["x-mlx-stack-escalation-reason"] == "timeout"
        assert await is_degraded(proxy) is (silent == "the server")


# What changes while a request waits: the tier's state, the time that is left

FAILS = b"HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


async def test_who_waits_for_a_tier_that_fails_goes_to_the_next(three_tiers: StartProxy) -> None:
    one_place = {"tiers.fast.max_concurrency": 1}
    proxy = await three_tiers(one_place, degrade={"failures": 1})
    gate = asyncio.Event()
    proxy.upstream.always(by_model(fast=Reply.raw(Wait(gate), FAILS)))
    running = asyncio.create_task(ask(proxy, session(0)))
    await proxy.upstream.next_call()
    waiting = [asyncio.create_task(ask(proxy, session(number))) for number in (1, 2, 3)]
    await until_metric(proxy, "mlx_stack_queue_depth", 3, tier="fast")
    gate.set()
    assert (await running).headers["x-mlx-stack-escalation-reason"] == "server_error"
    for other in await asyncio.gather(*waiting):
        assert other.headers["x-mlx-stack-tier"] == "standard"
        assert other.headers["x-mlx-stack-escalation-reason"] == "tier_degraded"
        assert other.headers["x-mlx-stack-attempts"] == "1"
    assert asked(proxy.upstream).count("fast") == 1, "nobody else has to find out"


async def test_a_probe_is_claimed_when_its_call_begins(proxy: RunningProxy, clock: Clock) -> None:
    """Of requests that arrive in the same moment, when the tier may be tried again, one tries."""
    await degrade(proxy.upstream, proxy)
    clock.now += COOLDOWN
    answers = await asyncio.gather(*(ask(proxy, session(number)) for number in range(8)))
    assert asked(proxy.upstream).count("fast") == 1
    assert {answer.headers["x-mlx-stack-tier"] for answer in answers} == {"standard"}
    proxy.upstream.always(by_model())
    clock.now += 60  # doubled, and by that one probe only
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"


# A degraded tier whose server was gone and answers again need not cool down


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedServer]:
    """The server of `fast`, which is asked often."""
    monkeypatch.setattr(recovery, "INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(recovery, "HEALTH_SECONDS", 0.3)
    async with ScriptedServer() as one:
        yield one


async def goes(server: ScriptedServer, upstream: ScriptedServer, proxy: RunningProxy) -> None:
    """The server of `fast` is gone, and a call on it fails."""
    upstream.always(by_model(fast=DEAD))
    await server.stop()
    await ask(proxy)
    assert await is_degraded(proxy)


def is_probed_next(proxy: RunningProxy) -> bool:
    return "fast" not in proxy.services.tier_states.view().passed_over


async def test_it_is_probed_as_soon_as_its_server_is_back(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str], three_tiers: StartProxy
) -> None:
    changes = {"tiers.fast.health_url": f"{server.url}/health"}
    proxy = await three_tiers(changes, degrade=ONE_FAILURE, sticky_seconds=0)
    await goes(server, proxy.upstream, proxy)
    assert (await ask(proxy)).headers["x-mlx-stack-escalation-reason"] == "tier_degraded"
    proxy.upstream.always(by_model())
    await server.listen()
    await until(lambda: is_probed_next(proxy))
    assert await is_degraded(proxy), "a call on it decides"
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"
    assert not await is_degraded(proxy)
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "tier_answers_again" in one]
    assert "request_id" not in line, "that is no request"


async def test_what_was_degraded_before_a_restart_is_watched(
    upstream: ScriptedServer, server: ScriptedServer, three_tiers: StartProxy, tmp_path: Path
) -> None:
    kept = {"state.backend": "sqlite", "state.path": str(tmp_path / "state.db")}
    changes = {"tiers.fast.health_url": f"{server.url}/health", **kept}
    upstream.models = CHAIN
    given = {**settings(degrade=ONE_FAILURE), **changes}
    async with running_proxy(upstream.url, given) as first:
        await goes(server, upstream, first)
    proxy = await three_tiers(changes, degrade=ONE_FAILURE)
    assert proxy.services.recovery.watched == {"fast"}
    assert not is_probed_next(proxy)
    await server.listen()
    await until(lambda: is_probed_next(proxy))
    await proxy.services.journal.written()
    known = await proxy.services.store.breakers()
    assert known["fast"].degraded_until <= proxy.services.wall_clock(), "other workers know it, too"
