"""The servers of a run: one for each model, LiteLLM before them, the proxy before that."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agents.proxied import proxy
from benchmarks.agents.stack import START_SECONDS, Backend
from mlx_stack_proxy.operator.local_stack import children, configs
from mlx_stack_proxy.operator.local_stack.guarded_process import Lifeline
from mlx_stack_proxy.operator.local_stack.probes import HttpProbe
from mlx_stack_proxy.operator.local_stack.run_directory import RunDirectory
from mlx_stack_proxy.operator.local_stack.supervisor import Console, Supervisor
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
    key, run = f"sk-{secrets.token_urlsafe(32)}", RunDirectory(folder / "litellm")
    configs.write_yaml(run.litellm_config, configs.litellm_config(tiers))
    specs = [
        children.litellm(first, key, run, START_SECONDS),
        *(_server(tier, python, run, threads) for tier in tiers),
    ]
    backend = Backend(f"http://127.0.0.1:{first}", key, {tier.name: tier for tier in tiers})
    try:
        with Lifeline() as lifeline:
            supervisor = Supervisor(Console(), lifeline)
            try:
                await supervisor.start(specs)
                ways = {f"direct:{tier.name}": Way(backend.url, tier.name, key) for tier in tiers}
                async with contextlib.AsyncExitStack() as proxies:
                    for name in titles(models).keys() - ways.keys():
                        chosen = tiers if name == "proxy:all" else tiers[-1:]
                        proxied = _proxied(backend, chosen, folder / name.replace(":", "-"))
                        url = await proxies.enter_async_context(proxied)
                        ways[name] = Way(url, chosen[0].name)
                    yield ways
            finally:
                await supervisor.stop()
    finally:
        run.close()


def _proxied(
    backend: Backend, tiers: Sequence[LocalTier], folder: Path
) -> contextlib.AbstractAsyncContextManager[str]:
    models = {tier.name: tier.name for tier in tiers}
    return proxy(backend, backend.url, models, {}, folder, faults=False)


def _server(tier: LocalTier, python: Path, run: RunDirectory, threads: int) -> children.ChildSpec:
    if Path(tier.model).is_dir():
        return children.model_server(tier, run, START_SECONDS)
    return _llama(tier, python, run, threads)


def _llama(tier: LocalTier, python: Path, run: RunDirectory, threads: int) -> children.ChildSpec:
    command = (str(python), "-u", str(_SERVER), tier.model, str(tier.port), str(threads))
    return children.ChildSpec(
        name=tier.name,
        what=f"llama.cpp on :{tier.port} with {Path(tier.model).name}",
        command=command,
        # Threads that wait don't spin: the machine has other work.
        environment={**os.environ, "OMP_WAIT_POLICY": "passive"},
        directory=run.path,
        log_file=run.log_file(tier.name),
        probe=HttpProbe(tier.port, "/health"),
        start_limit=START_SECONDS,
        end_grace=5,
    )
