"""What the agents ask: LiteLLM before the demo tiers, or one that runs, and the proxy."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from app.local_stack import children, configs
from app.local_stack.console import Console
from app.local_stack.guarded_process import Lifeline
from app.local_stack.run_directory import RunDirectory
from app.local_stack.supervisor import Supervisor
from app.local_stack.tiers import chosen_tiers

START_SECONDS = 600.0
# With faults: a tier that says nothing for so long has stalled.
SILENCE_SECONDS = 20.0


@dataclass
class Backend:
    """A LiteLLM and what it serves. ``windows``: context windows of its models, where known.

    ``ports``: of the model servers, where they are ours, so that one can be killed.
    """

    url: str
    key: str
    windows: dict[str, int] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def kill(self, model: str) -> bool:
        """Kill a model's server, which is started again; False: it isn't ours to kill."""
        port = str(self.ports.get(model))
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if port in child.cmdline():
                    child.send_signal(signal.SIGKILL)
                    return True
        return False


@contextlib.asynccontextmanager
async def demo_backend(folder: Path) -> AsyncIterator[Backend]:
    """LiteLLM and the two demo tiers, started as `mlx-stack-proxy up` does it."""
    litellm_port, *ports = _free_ports(3)
    tiers = [
        replace(tier, port=port)
        for tier, port in zip(chosen_tiers([], ports[0]), ports, strict=True)
    ]
    key = f"sk-{secrets.token_urlsafe(32)}"
    run = RunDirectory(folder)
    configs.write_yaml(run.litellm_config, configs.litellm_config(tiers))
    specs = [
        children.litellm(litellm_port, key, run, START_SECONDS),
        *(children.model_server(tier, run, START_SECONDS) for tier in tiers),
    ]
    windows = {tier.name: tier.context_window for tier in tiers if tier.context_window}
    try:
        with Lifeline() as lifeline:
            supervisor = Supervisor(Console(), lifeline)
            try:
                await supervisor.start(specs)
                yield Backend(
                    f"http://127.0.0.1:{litellm_port}",
                    key,
                    windows,
                    {tier.name: tier.port for tier in tiers},
                )
            finally:
                await supervisor.stop()
    finally:
        run.close()


@contextlib.asynccontextmanager
async def proxy(
    backend: Backend,
    upstream: str,
    models: Mapping[str, str],
    changes: Mapping[str, Any],
    folder: Path,
    *,
    faults: bool,
) -> AsyncIterator[str]:
    """The proxy in a process of its own, with nothing remembered; its URL.

    ``models``: LiteLLM's name of each tier, weakest first. ``changes``: of `reliability`.
    """
    (port,) = _free_ports(1)
    run = RunDirectory(folder)
    config: dict[str, Any] = {
        "server": {"host": "127.0.0.1", "port": port, "api_keys": ["*"]},
        "upstream": {"base_url": upstream, "api_key_env": configs.KEY_VARIABLE},
        "tiers": {
            tier: _tier(model, backend.windows.get(model), faults) for tier, model in models.items()
        },
        "reliability": {
            "escalation": {"chain": list(models)},
            "token_budget": {"downgrade_tier": next(iter(models))},
        },
        "state": {"backend": "memory"},
    }
    for path, value in changes.items():
        section, key = path.split(".")
        config["reliability"].setdefault(section, {})[key] = value
    configs.write_yaml(run.proxy_config, config)
    try:
        with Lifeline() as lifeline:
            supervisor = Supervisor(Console(), lifeline)
            try:
                await supervisor.start([children.proxy(port, backend.key, run, START_SECONDS)])
                yield f"http://127.0.0.1:{port}"
            finally:
                await supervisor.stop()
    finally:
        run.close()


def _tier(model: str, window: int | None, faults: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {"model": model}
    if window:
        settings["context_window"] = window
    if faults:
        names = ("first_token_timeout", "idle_timeout", "tool_silence_timeout")
        settings |= dict.fromkeys(names, SILENCE_SECONDS)
    return settings


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        found = []
        for _ in range(count):
            one = held.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            found.append(one.getsockname()[1])
        return found
