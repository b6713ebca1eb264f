"""What agents ask: LiteLLM before model servers, or one that runs, and the proxy before that."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks import servers
from mlx_stack_proxy.operator.local_stack import children
from mlx_stack_proxy.operator.local_stack.run_directory import KEY_VARIABLE, RunDirectory
from mlx_stack_proxy.operator.local_stack.supervisor import Console, Supervisor
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier, chosen_tiers
from tests.support.ports import free_port

# With faults: a tier that says nothing for so long has stalled, or does not end in so long.
SILENCE_SECONDS = 20.0
WHOLE_SECONDS = 45.0


@dataclass
class Backend:
    """A LiteLLM and what it serves. ``tiers``: by its models' names, where they are ours."""

    url: str
    key: str
    tiers: Mapping[str, LocalTier] = field(default_factory=dict)

    def kill(self, model: str) -> bool:
        """Kill a model's server, which is started again; False: it isn't ours to kill."""
        if (tier := self.tiers.get(model)) is None:
            return False
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if str(tier.port) in child.cmdline():
                    child.kill()
                    return True
        return False


@contextlib.asynccontextmanager
async def litellm_before(
    tiers: Sequence[LocalTier],
    folder: Path,
    port: int,
    model_server: Callable[[LocalTier, RunDirectory], children.ChildSpec],
) -> AsyncIterator[Backend]:
    """LiteLLM before the tiers' model servers, started as `mlx-stack-proxy up` starts them."""
    key = f"sk-{secrets.token_urlsafe(32)}"
    run = RunDirectory(folder)
    children.write_yaml(run.litellm_config, children.litellm_config(tiers))
    specs = [children.litellm(port, key, run)]
    specs += [model_server(tier, run) for tier in tiers]
    try:
        async with Supervisor(Console()) as supervisor:
            await supervisor.start(specs)
            yield Backend(f"http://127.0.0.1:{port}", key, {one.name: one for one in tiers})
    finally:
        run.close()


@contextlib.asynccontextmanager
async def demo_backend(folder: Path) -> AsyncIterator[Backend]:
    """LiteLLM and the two demo tiers."""
    port = free_port(3)
    tiers = chosen_tiers([], port + 1)
    async with litellm_before(tiers, folder, port, children.model_server) as backend:
        yield backend


@contextlib.asynccontextmanager
async def proxy(
    backend: Backend,
    upstream: str,
    models: Mapping[str, str],
    folder: Path,
    *,
    faults: bool = False,
) -> AsyncIterator[str]:
    """The proxy in a process of its own, with nothing remembered; its URL.

    ``models``: LiteLLM's name of each tier, weakest first.
    """
    config: dict[str, Any] = {
        "server": {"api_keys": ["*"]},
        "upstream": {"base_url": upstream, "api_key_env": KEY_VARIABLE},
        "tiers": {tier: _tier(model, backend, faults=faults) for tier, model in models.items()},
        "reliability": {
            "escalation": {"chain": list(models)},
            "token_budget": {"downgrade_tier": next(iter(models))},
        },
        "state": {"backend": "memory"},
    }
    key = {KEY_VARIABLE: backend.key}
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    server = await asyncio.to_thread(servers.serve, config, folder, **key)
    try:
        yield server.url
    finally:
        await asyncio.to_thread(server.stop)


def _tier(model: str, backend: Backend, *, faults: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {"model": model}
    served = backend.tiers.get(model)
    if served and served.context_window is not None:
        settings["context_window"] = served.context_window
    if faults:
        names = ("first_token_timeout", "idle_timeout", "tool_silence_timeout")
        settings |= dict.fromkeys(names, SILENCE_SECONDS)
    if faults and served:
        # As `mlx-stack-proxy up` sets it. A server that answers is waited for, so the whole reply
        # needs a limit; the agent waits for 60 s.
        settings["health_url"] = f"{served.base_url}/health"
        settings["total_timeout"] = WHOLE_SECONDS
    return settings
