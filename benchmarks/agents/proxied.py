"""The proxy before a LiteLLM, as a column wants it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from mlx_stack_proxy.operator.local_stack import children, configs
from mlx_stack_proxy.operator.local_stack.run_directory import RunDirectory
from mlx_stack_proxy.operator.local_stack.supervisor import Console, Supervisor
from tests.support.ports import free_port

from .stack import Backend

# With faults: a tier that says nothing for so long has stalled, or does not end in so long.
SILENCE_SECONDS = 20.0
WHOLE_SECONDS = 45.0


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
    port = free_port()
    run = RunDirectory(folder)
    config: dict[str, Any] = {
        "server": {"host": "127.0.0.1", "port": port, "api_keys": ["*"]},
        "upstream": {"base_url": upstream, "api_key_env": configs.KEY_VARIABLE},
        "tiers": {tier: _tier(model, backend, faults=faults) for tier, model in models.items()},
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
        async with Supervisor(Console()) as supervisor:
            await supervisor.start([children.proxy(port, backend.key, run)])
            yield f"http://127.0.0.1:{port}"
    finally:
        run.close()


def _tier(model: str, backend: Backend, *, faults: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {"model": model}
    served = backend.tiers.get(model)
    if served is not None and served.context_window is not None:
        settings["context_window"] = served.context_window
    if faults:
        names = ("first_token_timeout", "idle_timeout", "tool_silence_timeout")
        settings |= dict.fromkeys(names, SILENCE_SECONDS)
    if faults and served is not None:
        # As `mlx-stack-proxy up` sets it. A server that answers is waited for, so the whole reply
        # needs a limit; the agent waits for 60 s.
        settings["health_url"] = served.health_url
        settings["total_timeout"] = WHOLE_SECONDS
    return settings
