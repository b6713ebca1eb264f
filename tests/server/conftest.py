"""The proxy and its upstream, both on real sockets."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from mlx_stack_proxy.state import redis_link
from tests.server import climbing
from tests.server.failing import SETTINGS
from tests.support.clock import Clock
from tests.support.forced_memory import ForcedMemory
from tests.support.redis_server import RedisServer
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import ScriptedServer

StartProxy = Callable[..., Awaitable[RunningProxy]]


@pytest.fixture(autouse=True)
def no_key_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITELLM_MASTER_KEY", raising=False)


@pytest.fixture
async def start_proxy(upstream: ScriptedServer) -> AsyncIterator[StartProxy]:
    """Starts a proxy with changed settings: `await start_proxy({"server.max_body_bytes": 9})`."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            changes: dict[str, Any] | None = None,
            url: str | None = None,
            wall_clock: Callable[[], float] = time.time,
            memory: ForcedMemory | None = None,
        ) -> RunningProxy:
            running = running_proxy(url or upstream.url, changes, wall_clock, memory)
            proxy = await stack.enter_async_context(running)
            proxy.upstream = upstream
            return proxy

        yield start


@pytest.fixture
async def proxy(start_proxy: StartProxy) -> RunningProxy:
    return await start_proxy()


@pytest.fixture
def three_tiers(upstream: ScriptedServer, start_proxy: StartProxy) -> StartProxy:
    """Starts a proxy with the tiers of `climbing`. `options`: as of its settings."""

    async def start(
        changes: dict[str, Any] | None = None,
        *,
        wall_clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> RunningProxy:
        upstream.models = climbing.CHAIN
        given = {**climbing.settings(**options), **(changes or {})}
        return await start_proxy(given, wall_clock=wall_clock)

    return start


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A real one, for this test alone."""
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture
def redis_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has failed."""
    monkeypatch.setattr(redis_link, "RETRY_SECONDS", 0.01)


@pytest.fixture
async def sdk(proxy: RunningProxy) -> AsyncIterator[openai.AsyncOpenAI]:
    http = openai.DefaultAsyncHttpxClient(verify=False)
    url = f"{proxy.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="local", http_client=http) as client:
        yield client


@pytest.fixture
def memory() -> ForcedMemory:
    return ForcedMemory(sustained_seconds=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where :func:`capturing` keeps what failed; not there yet."""
    return tmp_path / "private" / "failures"


@pytest.fixture
def capturing(folder: Path) -> dict[str, Any]:
    """Settings with which failures are captured."""
    observed = {"log_format": "json", "capture_failures": True, "capture_path": str(folder)}
    return {**SETTINGS, "observability": observed}
