"""A degraded tier whose server was gone and answers again need not cool down.

When a server is back: tests/escalation/test_recovery.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mlx_stack_proxy.escalation import recovery
from tests.server.asking import ask
from tests.server.climbing import DEAD, by_model, three_tiers
from tests.server.conftest import StartProxy
from tests.server.polling import is_degraded
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import until

ONE_FAILURE = {"failures": 1}


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
    upstream: ScriptedServer,
    server: ScriptedServer,
    start_proxy: StartProxy,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes = {"tiers.fast.health_url": f"{server.url}/health"}
    proxy = await three_tiers(upstream, start_proxy, changes, degrade=ONE_FAILURE, sticky_seconds=0)
    await goes(server, upstream, proxy)
    assert (await ask(proxy)).headers["x-mlx-stack-escalation-reason"] == "tier_degraded"
    upstream.always(by_model())
    await server.listen()
    await until(lambda: is_probed_next(proxy))
    assert await is_degraded(proxy), "a call on it decides"
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"
    assert not await is_degraded(proxy)
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "tier_answers_again" in one]
    assert "request_id" not in line, "that is no request"


async def test_what_was_degraded_before_a_restart_is_watched(
    upstream: ScriptedServer, server: ScriptedServer, start_proxy: StartProxy, tmp_path: Path
) -> None:
    kept = {"state.backend": "sqlite", "state.path": str(tmp_path / "state.db")}
    changes = {"tiers.fast.health_url": f"{server.url}/health", **kept}
    async with contextlib.AsyncExitStack() as stack:

        async def start(given: dict[str, object]) -> RunningProxy:
            return await stack.enter_async_context(running_proxy(upstream.url, given))

        first = await three_tiers(upstream, start, changes, degrade=ONE_FAILURE)
        await goes(server, upstream, first)
    proxy = await three_tiers(upstream, start_proxy, changes, degrade=ONE_FAILURE)
    assert proxy.services.recovery.watched == {"fast"}
    assert not is_probed_next(proxy)
    await server.listen()
    await until(lambda: is_probed_next(proxy))
    await proxy.services.journal.written()
    known = await proxy.services.store.breakers()
    assert known["fast"].degraded_until <= proxy.services.wall_clock(), "other workers know it, too"
