"""The two configuration files that ``up`` writes: LiteLLM's and the proxy's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from .. import deploy_path
from .tiers import LocalTier

KEY_VARIABLE = "LITELLM_MASTER_KEY"
CALLBACK = "mlx_stack_proxy.litellm.reliability"  # for `litellm_settings.callbacks`
# mlx_lm.server's name for the model it was started with. Asked for a name that it doesn't know, it
# would unload that model.
SERVED_MODEL = "default_model"
# Short, because a user who presses Ctrl-C wants an end; enough for a reply that is nearly done.
SHUTDOWN_GRACE_SECONDS = 5


def litellm_config(tiers: Sequence[LocalTier], inside: bool = False) -> dict[str, Any]:
    """Return LiteLLM's configuration: ``deploy/litellm/config.yaml`` with these tiers.

    ``inside``: with the reliability layer as a callback.
    """
    shipped = deploy_path("litellm/config.yaml").read_text(encoding="utf-8")
    config: dict[str, Any] = yaml.safe_load(shipped)
    entry = config["model_list"][0]
    config["model_list"] = []
    for tier in tiers:
        served = {"model": f"openai/{SERVED_MODEL}", "api_base": f"{tier.base_url}/v1"}
        params = {**entry["litellm_params"], **served}
        config["model_list"].append({**entry, "model_name": tier.name, "litellm_params": params})
    if inside:
        config["litellm_settings"]["callbacks"] = [CALLBACK]
    return config


def proxy_config(
    tiers: Sequence[LocalTier], port: int, litellm_port: int | None, state: Path
) -> dict[str, Any]:
    """Return the configuration of a proxy on ``port`` with the started tiers.

    ``litellm_port``: where LiteLLM listens; None if the proxy runs inside it, on its port.
    """
    server: dict[str, Any] = {"port": port}
    sections: dict[str, Any] = {"server": server, "state": {"path": str(state)}, "tiers": {}}
    if litellm_port is not None:
        server |= {"host": "127.0.0.1", "api_keys": ["*"]}
        server["shutdown_grace_seconds"] = SHUTDOWN_GRACE_SECONDS
        url = f"http://127.0.0.1:{litellm_port}"
        sections["upstream"] = {"base_url": url, "api_key_env": KEY_VARIABLE}
    for tier in tiers:
        window = {"context_window": tier.context_window} if tier.context_window else {}
        health_url = f"{tier.base_url}/health"
        sections["tiers"][tier.name] = {"model": tier.name, "health_url": health_url, **window}
    names = list(sections["tiers"])
    reliability = {"escalation": {"chain": names}, "token_budget": {"downgrade_tier": names[0]}}
    return {**sections, "reliability": reliability}


def write_yaml(path: Path, data: dict[str, Any]) -> None:
    """Write a configuration below a comment that says who wrote it."""
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    head = "# Written by `mlx-stack-proxy up`, anew at each start: changes here are lost.\n"
    path.write_text(head + text, encoding="utf-8")
