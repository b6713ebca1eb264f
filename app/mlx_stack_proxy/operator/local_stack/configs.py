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
    served = {**entry["litellm_params"], "model": f"openai/{SERVED_MODEL}"}
    config["model_list"] = [
        {
            **entry,
            "model_name": tier.name,
            "litellm_params": {**served, "api_base": f"{tier.base_url}/v1"},
        }
        for tier in tiers
    ]
    if inside:
        config["litellm_settings"]["callbacks"] = [CALLBACK]
    return config


def proxy_config(
    tiers: Sequence[LocalTier], port: int, litellm_port: int, state: Path
) -> dict[str, Any]:
    """Return the configuration of a proxy in front of that LiteLLM, with the started tiers."""
    server = {"host": "127.0.0.1", "port": port, "api_keys": ["*"]}
    return {
        "server": {**server, "shutdown_grace_seconds": SHUTDOWN_GRACE_SECONDS},
        "upstream": {
            "base_url": f"http://127.0.0.1:{litellm_port}",
            "api_key_env": KEY_VARIABLE,
        },
        **_tiers_and_state(tiers, state),
    }


def inside_config(tiers: Sequence[LocalTier], port: int, state: Path) -> dict[str, Any]:
    """Return the reliability layer's configuration inside a LiteLLM that listens on ``port``."""
    return {"server": {"port": port}, **_tiers_and_state(tiers, state)}


def _tiers_and_state(tiers: Sequence[LocalTier], state: Path) -> dict[str, Any]:
    names = [tier.name for tier in tiers]
    keys = {tier.name: {"model": tier.name, "health_url": tier.health_url} for tier in tiers}
    windows = {t.name: {"context_window": t.context_window} for t in tiers if t.context_window}
    return {
        "tiers": {name: {**keys[name], **windows.get(name, {})} for name in names},
        "reliability": {
            "escalation": {"chain": names},
            "token_budget": {"downgrade_tier": names[0]},
        },
        "state": {"path": str(state)},
    }


def write_yaml(path: Path, data: dict[str, Any]) -> None:
    """Write a configuration below a comment that says who wrote it."""
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    head = "# Written by `mlx-stack-proxy up`, anew at each start: changes here are lost.\n"
    path.write_text(head + text, encoding="utf-8")
