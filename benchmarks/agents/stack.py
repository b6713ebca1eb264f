"""What the agents ask: LiteLLM before the demo tiers, or one that runs."""

from __future__ import annotations

import contextlib
import secrets
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from mlx_stack_proxy.operator.local_stack import children, configs
from mlx_stack_proxy.operator.local_stack.guarded_process import Lifeline
from mlx_stack_proxy.operator.local_stack.run_directory import RunDirectory
from mlx_stack_proxy.operator.local_stack.supervisor import Console, Supervisor
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier, chosen_tiers
from tests.support.ports import free_port

START_SECONDS = 600.0


@dataclass
class Backend:
    """A LiteLLM and what it serves. ``tiers``: by its models' names, where they are ours."""

    url: str
    key: str
    tiers: Mapping[str, LocalTier] = field(default_factory=dict)

    def kill(self, model: str) -> bool:
        """Kill a model's server, which is started again; False: it isn't ours to kill."""
        tier = self.tiers.get(model)
        if tier is None:
            return False
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if str(tier.port) in child.cmdline():
                    child.send_signal(signal.SIGKILL)
                    return True
        return False


@contextlib.asynccontextmanager
async def demo_backend(folder: Path) -> AsyncIterator[Backend]:
    """LiteLLM and the two demo tiers, started as `mlx-stack-proxy up` does it."""
    litellm_port = free_port(3)
    tiers = chosen_tiers([], litellm_port + 1)
    key = f"sk-{secrets.token_urlsafe(32)}"
    run = RunDirectory(folder)
    configs.write_yaml(run.litellm_config, configs.litellm_config(tiers))
    specs = [
        children.litellm(litellm_port, key, run, START_SECONDS),
        *(children.model_server(tier, run, START_SECONDS) for tier in tiers),
    ]
    try:
        with Lifeline() as lifeline:
            supervisor = Supervisor(Console(), lifeline)
            try:
                await supervisor.start(specs)
                served = {tier.name: tier for tier in tiers}
                yield Backend(f"http://127.0.0.1:{litellm_port}", key, served)
            finally:
                await supervisor.stop()
    finally:
        run.close()
