"""The two configuration files that ``up`` writes: LiteLLM's and the proxy's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from .tiers import LocalTier

KEY_VARIABLE = "LITELLM_MASTER_KEY"
CALLBACK = "mlx_stack_proxy.litellm.reliability"  # for `litellm_settings.callbacks`
# mlx_lm.server's name for the model it was started with. Asked for a name that it doesn't know, it
# would unload that model.
SERVED_MODEL = "default_model"
# Short, because a user who presses Ctrl-C wants an end; enough for a reply that is nearly done.
SHUTDOWN_GRACE_SECONDS = 5


def litellm_config(tiers: Sequence[LocalTier], inside: bool = False) -> dict[str, Any]:
    """Return LiteLLM's configuration: a model group for each tier, no retries and no cooldowns.

    The proxy retries and takes tiers out itself. ``inside``: with the reliability layer as a
    callback.
    """
    return {
        "model_list": [
            {
                "model_name": tier.name,
                "litellm_params": {
                    "model": f"openai/{SERVED_MODEL}",
                    "api_base": f"{tier.base_url}/v1",
                    "api_key": "unused",
                    # Answer /v1/responses by chat completions, all that mlx_lm.server has.
                    "use_chat_completions_api": True,
                },
                "model_info": {"mode": "chat"},
            }
            for tier in tiers
        ],
        "litellm_settings": {
            "num_retries": 0,
            "telemetry": False,
            "use_chat_completions_url_for_anthropic_messages": True,
            **({"callbacks": [CALLBACK]} if inside else {}),
        },
        "router_settings": {"disable_cooldowns": True, "num_retries": 0},
        "general_settings": {"master_key": f"os.environ/{KEY_VARIABLE}"},
    }


def proxy_config(
    tiers: Sequence[LocalTier], port: int, litellm_port: int, state: Path
) -> dict[str, Any]:
    """Return the configuration of a proxy in front of that LiteLLM, with the started tiers."""
    return {
        "server": {
            "host": "127.0.0.1",
            "port": port,
            "api_keys": ["*"],
            "shutdown_grace_seconds": SHUTDOWN_GRACE_SECONDS,
        },
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
    return {
        "tiers": {tier.name: _proxy_tier(tier) for tier in tiers},
        "reliability": {
            "escalation": {"chain": names},
            "token_budget": {"downgrade_tier": names[0]},
        },
        "state": {"path": str(state)},
    }


def _proxy_tier(tier: LocalTier) -> dict[str, Any]:
    settings: dict[str, Any] = {"model": tier.name, "health_url": tier.health_url}
    if tier.context_window is not None:
        settings["context_window"] = tier.context_window
    return settings


def write_yaml(path: Path, data: dict[str, Any]) -> None:
    """Write a configuration below a comment that says who wrote it."""
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    head = "# Written by `mlx-stack-proxy up`, anew at each start: changes here are lost.\n"
    path.write_text(head + text, encoding="utf-8")
