"""The two stacks: `up` with the demo tiers, and one whose model servers are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from benchmarks.frameworks.scripted import ModelServers, Plays
from mlx_stack_proxy.operator.local_stack import children, configs
from mlx_stack_proxy.operator.local_stack.guarded_process import Lifeline, end, start
from mlx_stack_proxy.operator.local_stack.run_directory import RunDirectory
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier
from tests.e2e.running_stack import RunningStack
from tests.faults.litellm import LiteLLM
from tests.support.ports import free_port

TIERS = ("fast", "standard")


class DemoStack:
    """`mlx-stack-proxy up`: the demo tiers, which can't be told what to say."""

    def __init__(self, folder: Path) -> None:
        self._stack = RunningStack(folder)
        self.url = self._stack.url

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._stack.wait_ready)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._stack.stop)


class ScriptedStack:
    """Scripted model servers, the real LiteLLM, and `serve` with what `up` would have written.

    `of_tiers`: settings that each tier has beside those.
    """

    def __init__(self, folder: Path, of_tiers: Mapping[str, Any] | None = None) -> None:
        first = free_port(4)
        ports = {name: first + 2 + number for number, name in enumerate(TIERS)}
        self.url = f"http://127.0.0.1:{first}"
        self._servers = ModelServers(list(ports.values()))
        self.litellm = LiteLLM(folder / "litellm", first + 1, ports)
        self._directory = RunDirectory(folder / "proxy")
        tiers = [LocalTier(name, name, port, False) for name, port in ports.items()]
        config = configs.proxy_config(tiers, first, first + 1, self._directory.state)
        for tier in config["tiers"].values():
            del tier["health_url"]  # a scripted server has none
            tier.update(of_tiers or {})
        configs.write_yaml(self._directory.proxy_config, config)
        self._proxy = children.proxy(first, self.litellm.key, self._directory)
        self._lifeline = Lifeline()

    async def __aenter__(self) -> Self:
        await self._servers.listen()
        await asyncio.to_thread(self.litellm.wait_ready)
        spec = self._proxy
        self._process = await start(
            spec.command, spec.environment, spec.directory, spec.log_file, self._lifeline
        )
        await spec.probe.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await end(self._process, self._proxy.end_grace)
        await asyncio.to_thread(self.litellm.stop)
        await self._servers.stop()
        self._directory.close()

    @property
    def config(self) -> Path:
        """The proxy's own file."""
        return self._directory.proxy_config

    def play(self, model: Plays) -> None:
        self._servers.play(model)
