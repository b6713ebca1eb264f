"""A degraded tier whose server was gone and answers again need not cool down."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.escalation import recovery
from tests.server.asking import ask
from tests.server.climbing import DEAD, by_model, three_tiers
from tests.server.conftest import StartProxy
from tests.server.polling import is_degraded
from tests.support.clock import Clock
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import SILENCE, Call, Reply, ScriptedServer
from tests.support.waiting import until

COOLDOWN = 30.0


class ModelServer(ScriptedServer):
    """``questions``: how often it was asked for its health."""

    questions = 0

    def own_reply(self, call: Call) -> Reply | None:
        self.questions += 1
        return super().own_reply(call)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelServer]:
    """The server of `fast`, which is asked often."""
    monkeypatch.setattr(recovery, "INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(recovery, "HEALTH_SECONDS", 0.3)
    async with ModelServer() as one:
        yield one


@pytest.fixture
async def proxy(
    server: ModelServer, upstream: ScriptedServer, start_proxy: StartProxy, clock: Clock
) -> RunningProxy:
    return await three_tiers(
        upstream,
        start_proxy,
        asking(server),
        wall_clock=clock,
        degrade={"failures": 1, "cooldown_seconds": COOLDOWN},
        sticky_seconds=0,
    )


def asking(server: ModelServer) -> dict[str, Any]:
    return {"tiers.fast.health_url": f"{server.url}/health"}


async def goes(server: ModelServer, upstream: ScriptedServer, proxy: RunningProxy) -> None:
    """The server of `fast` is gone, and a call on it fails."""
    upstream.always(by_model(fast=DEAD))
    await server.stop()
    await ask(proxy)


def is_probed_next(proxy: RunningProxy) -> bool:
    return "fast" not in proxy.services.tier_states.view().passed_over


async def test_it_is_probed_as_soon_as_its_server_is_back(
    upstream: ScriptedServer,
    server: ModelServer,
    proxy: RunningProxy,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await goes(server, upstream, proxy)
    assert await is_degraded(proxy)
    assert (await ask(proxy)).headers["x-mlx-stack-escalation-reason"] == "tier_degraded"
    upstream.always(by_model())
    await server.listen()
    await until(lambda: is_probed_next(proxy))
    assert await is_degraded(proxy), "a call on it decides"
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"
    assert not await is_degraded(proxy)
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "tier_answers_again" in one]
    assert "request_id" not in line, "that is no request"


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_server_that_was_not_gone_is_none_the_better_for_its_answers(
    hangs: bool, upstream: ScriptedServer, server: ModelServer, proxy: RunningProxy, clock: Clock
) -> None:
    upstream.always(by_model(fast=DEAD))
    if hangs:
        server.routes["GET", "/health"] = Reply.raw(SILENCE)
    await ask(proxy)
    await until(lambda: server.questions >= 3)
    if hangs:
        del server.routes["GET", "/health"]
        server.questions = 0
        await until(lambda: server.questions >= 3)
    assert not is_probed_next(proxy)
    clock.now += COOLDOWN
    assert is_probed_next(proxy)


async def test_it_is_asked_no_more_once_it_has_recovered(
    upstream: ScriptedServer, server: ModelServer, proxy: RunningProxy, clock: Clock
) -> None:
    upstream.always(by_model(fast=DEAD))
    await ask(proxy)
    upstream.always(by_model())
    clock.now += COOLDOWN
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"
    watch = proxy.services.recovery
    await until(lambda: not watch.watched)
    assert not await is_degraded(proxy)


async def test_a_degraded_tier_is_watched_after_a_change_of_settings(
    upstream: ScriptedServer, server: ModelServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, degrade={"failures": 1})
    upstream.always(by_model(fast=DEAD))
    await ask(proxy)
    services = proxy.services
    assert not services.recovery.watched, "nothing to ask"
    tier = services.settings.tiers["fast"]
    known = replace(tier, health_url=f"{server.url}/health")
    tiers = {**services.settings.tiers, "fast": known}
    services.recovery.adapt(replace(services.settings, tiers=tiers))
    await until(lambda: server.questions)
    assert services.recovery.watched == {"fast"}


async def test_a_server_that_says_it_is_loading_is_not_back_yet(
    upstream: ScriptedServer, server: ModelServer, proxy: RunningProxy
) -> None:
    """As llama-server does: it listens at once, and /health is a 503 for as long as it loads."""
    await goes(server, upstream, proxy)
    server.routes["GET", "/health"] = Reply.json({"error": "Loading model"}, status=503)
    await server.listen()
    await until(lambda: server.questions >= 3)
    assert not is_probed_next(proxy)
    del server.routes["GET", "/health"]
    await until(lambda: is_probed_next(proxy))


async def test_what_was_degraded_before_a_restart_is_watched(
    upstream: ScriptedServer, server: ModelServer, start_proxy: StartProxy, tmp_path: Path
) -> None:
    kept = {"state.backend": "sqlite", "state.path": str(tmp_path / "state.db")}
    changes = {**asking(server), **kept}
    async with contextlib.AsyncExitStack() as stack:

        async def start(given: Any) -> RunningProxy:
            return await stack.enter_async_context(running_proxy(upstream.url, given))

        await goes(
            server, upstream, await three_tiers(upstream, start, changes, degrade={"failures": 1})
        )
    proxy = await three_tiers(upstream, start_proxy, changes, degrade={"failures": 1})
    assert proxy.services.recovery.watched == {"fast"}
    assert not is_probed_next(proxy)
    await server.listen()
    await until(lambda: is_probed_next(proxy))
    await proxy.services.journal.written()
    known = await proxy.services.store.breakers()
    assert known["fast"].degraded_until <= proxy.services.wall_clock(), "other workers know it, too"
