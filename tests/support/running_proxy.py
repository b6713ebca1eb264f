"""Runs the whole proxy on a real socket, inside the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from mlx_stack_proxy import log
from mlx_stack_proxy.driver.services import Services
from mlx_stack_proxy.main import build_services
from mlx_stack_proxy.operator.process import Server
from mlx_stack_proxy.settings_source import from_mapping
from tests.support.forced_memory import ForcedMemory
from tests.support.scripted_server import ScriptedServer

Json = dict[str, Any]

# One tier in the chain and no retries, so that a test sees a fault instead of its repair. The
# memory that other programs use must not decide a test.
BASE: Json = {
    "server": {"host": "127.0.0.1"},
    "tiers": {"fast": {"model": "fast"}, "standard": {"model": "standard"}},
    "reliability": {
        "escalation": {"chain": ["fast"], "max_retries_before_escalate": 0},
        "tool_validation": {"max_retries": 0},
        "memory_pressure": {"enabled": False},
    },
    "state": {"backend": "memory"},
    "observability": {"log_format": "json"},
}


def proxy_config(upstream: str, changes: Json | None = None) -> Json:
    """Return ``BASE`` for this upstream; ``changes`` has dotted keys, as in ``a.b: 1``."""
    config = copy.deepcopy(BASE)
    for path, value in {"upstream.base_url": upstream, **(changes or {})}.items():
        *parents, last = path.split(".")
        place = config
        for key in parents:
            place = place.setdefault(key, {})
        place[last] = copy.deepcopy(value)  # a later key may change the copy
    rules = config["reliability"]
    if "max_retries_before_escalate" not in str(changes):  # it bounds the retries of bad calls, too
        retries = rules["tool_validation"].get("max_retries", 3)
        rules["escalation"]["max_retries_before_escalate"] = retries
    return config


class _Server(Server):
    async def main_loop(self) -> None:
        """Tick more often than ten times a second: each test waits for its proxy's end."""
        counter = 0
        while not await self.on_tick(counter):
            counter += 1
            await asyncio.sleep(0.01)


@dataclass
class RunningProxy:
    port: int
    server: uvicorn.Server
    client: httpx.AsyncClient
    services: Services
    upstream: ScriptedServer | None = None  # what it asks, where that is a test's own

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def raw(self, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send bytes unchanged over a new connection; return its two ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        await writer.drain()
        return reader, writer


def listening_socket() -> socket.socket:
    found = socket.socket()
    found.bind(("127.0.0.1", 0))
    found.listen(128)  # at once, since another process may get a port that is only bound
    return found


@contextlib.asynccontextmanager
async def running_proxy(
    upstream: str,
    changes: Json | None = None,
    wall_clock: Callable[[], float] = time.time,
    memory: ForcedMemory | None = None,
) -> AsyncIterator[RunningProxy]:
    """Run a proxy for the block.

    ``changes``: as for :func:`proxy_config`. ``wall_clock``: the proxy's clock, in seconds since
    the epoch. ``memory``: stands in for this machine's memory.
    """
    forced = {"reliability.memory_pressure": memory.rules} if memory else {}
    with listening_socket() as listener:
        port = listener.getsockname()[1]
        config = proxy_config(upstream, {"server.port": port, **forced, **(changes or {})})
        settings = from_mapping(config)
        log.configure(settings.observability)
        probe = memory.probe if memory else None
        services = build_services(settings, wall_clock=wall_clock, memory=probe)
        server = _Server(services)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                if serving.done():
                    serving.result()
                    raise RuntimeError("the proxy ended before it was ready")
                await asyncio.sleep(0.005)
            base = f"http://127.0.0.1:{port}"
            # Without `verify` it would read all the system's certificates, for each test.
            async with httpx.AsyncClient(
                base_url=base, trust_env=False, timeout=20, verify=False
            ) as client:
                yield RunningProxy(port, server, client, services)
        finally:
            server.should_exit = True
            await serving
