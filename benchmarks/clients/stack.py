"""A stack whose model servers are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from benchmarks import servers
from mlx_stack_proxy.operator.local_stack import children
from mlx_stack_proxy.operator.local_stack.run_directory import KEY_VARIABLE
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier
from tests.faults.litellm import LiteLLM
from tests.support.ports import free_port
from tests.support.scripted_server import ScriptedServer, WhenWhole

from .scripted import Plays

TIERS = ("fast", "standard")


class ScriptedStack:
    """Scripted model servers, the real LiteLLM, and `serve` with what `up` would have written.

    `of_tiers`: settings that each tier has besides those. `config`: the proxy's own file.
    """

    def __init__(self, folder: Path, of_tiers: Mapping[str, Any]) -> None:
        self._folder = folder
        first = free_port(4)
        ports = {name: first + 2 + number for number, name in enumerate(TIERS)}
        self.url = f"http://127.0.0.1:{first}"
        self._servers = [ScriptedServer() for _ in TIERS]
        for server, port in zip(self._servers, ports.values(), strict=True):
            server.port = port
        self.litellm = LiteLLM(folder / "litellm", first + 1, ports)
        self._tiers = [LocalTier(name, name, port, False) for name, port in ports.items()]
        state = folder / "state.db"
        self._settings = children.proxy_config(self._tiers, first, first + 1, state)
        for tier in self._settings["tiers"].values():
            del tier["health_url"]  # a scripted server has none
            tier.update(of_tiers)
        self.config = folder / f"proxy-{first}.yaml"

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(server.listen() for server in self._servers))
        await asyncio.to_thread(self.litellm.wait_ready)
        key = {KEY_VARIABLE: self.litellm.key}
        self._proxy = await asyncio.to_thread(servers.serve, self._settings, self._folder, **key)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._proxy.stop)
        await asyncio.to_thread(self.litellm.stop)
        await asyncio.gather(*(server.stop() for server in self._servers))

    def play(self, model: Plays) -> None:
        for server in self._servers:
            server.always(WhenWhole(model.reply))
