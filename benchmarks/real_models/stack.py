"""The servers of a run: one for each model, LiteLLM before them, the proxy before that."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.agents.stack import litellm_before, proxy
from mlx_stack_proxy.operator.local_stack import children
from mlx_stack_proxy.operator.local_stack.run_directory import RunDirectory
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier
from tests.support.ports import free_port

from .models import Model

CONTEXT = 12_288  # as llama_server.py has it
_SERVER = Path(__file__).with_name("llama_server.py")


@dataclass(frozen=True)
class Way:
    """One way to ask: a server's address and the model to name there."""

    url: str
    model: str
    key: str = ""


def titles(models: Sequence[Model]) -> dict[str, str]:
    """Return the ways to ask by name, each with its title."""
    small, large = models[0], models[-1]
    ways = {f"direct:{model.name}": f"{model.title}, directly" for model in models}
    if small is not large:
        ways["proxy:all"] = f"{small.title} → {large.title}, through the proxy"
    return ways | {f"proxy:{large.name}": f"{large.title}, through the proxy"}


@contextlib.asynccontextmanager
async def running(
    models: Sequence[Model], python: Path, folder: Path, threads: int
) -> AsyncIterator[dict[str, Way]]:
    """Start everything; yield the ways to ask, by name."""
    first = free_port(len(models) + 1)
    tiers = [
        LocalTier(model.name, str(model.path), first + 1 + number, True, CONTEXT)
        for number, model in enumerate(models)
    ]
    server = partial(_server, python=python, threads=threads)
    async with (
        litellm_before(tiers, folder / "litellm", first, server) as backend,
        contextlib.AsyncExitStack() as proxies,
    ):
        ways = {f"direct:{tier.name}": Way(backend.url, tier.name, backend.key) for tier in tiers}
        for name in titles(models).keys() - ways.keys():
            chosen = {one.name: one.name for one in (tiers if name == "proxy:all" else tiers[-1:])}
            proxied = proxy(backend, backend.url, chosen, folder / name.replace(":", "-"))
            ways[name] = Way(await proxies.enter_async_context(proxied), next(iter(chosen)))
        yield ways


def _server(tier: LocalTier, run: RunDirectory, python: Path, threads: int) -> children.ChildSpec:
    if Path(tier.model).is_dir():
        return children.model_server(tier, run)
    command = (str(python), "-u", str(_SERVER), tier.model, str(tier.port), str(threads))
    return children.ChildSpec(
        name=tier.name,
        what=f"llama.cpp on :{tier.port} with {Path(tier.model).name}",
        command=command,
        # Threads that wait don't spin: the machine has other work.
        environment={**os.environ, "OMP_WAIT_POLICY": "passive"},
        directory=run.path,
        log_file=run.log_file(tier.name),
        url=f"{tier.base_url}/health",
    )
