"""What LiteLLM's own settings do to a proxy before it, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mlx_stack_proxy.operator.init import advice

SHIPPED = Path(__file__).parents[3] / "deploy" / "litellm" / "config.yaml"
QUIET = {"num_retries": 0, "disable_cooldowns": True}
GOOD: dict[str, Any] = {"router_settings": QUIET}


def test_the_configuration_that_ships_needs_none() -> None:
    assert not list(advice.on_litellm(yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"router_settings": {"disable_cooldowns": True}},
            "router_settings.num_retries is not set",
        ),
        ({"router_settings": {**QUIET, "num_retries": 2}}, "router_settings.num_retries: 2: att"),
        ({"router_settings": {"num_retries": 0}}, "router_settings.disable_cooldowns is not true"),
        ({"general_settings": {"fallbacks": [{"a": ["b"]}]}}, "general_settings.fallbacks does"),
        (
            {"litellm_settings": {"fallbacks": [{"a": ["b"]}]}},
            "litellm_settings.fallbacks: silently moves",
        ),
        (
            {"litellm_settings": {"context_window_fallbacks": [{"a": ["b"]}]}},
            "litellm_settings.context_window_fallbacks: silently moves",
        ),
        ({"litellm_settings": {"num_retries": 3}}, "litellm_settings.num_retries: 3: attempts"),
        ({"litellm_settings": {"num_retries": "3"}}, "litellm_settings.num_retries: 3: attempts"),
        (
            {"model_list": [{"model_name": "a", "litellm_params": {"max_retries": 2}}]},
            "max_retries: 2 of model a: attempts multiply",
        ),
    ],
)
def test_one_thing_wrong(more: dict[str, Any], said: str) -> None:
    (only,) = advice.on_litellm({**GOOD, **more})
    assert only.startswith(said)


@pytest.mark.parametrize("odd", [None, [], "x", {"router_settings": [], "model_list": {"a": 1}}])
def test_odd_files_break_nothing(odd: Any) -> None:
    assert len(list(advice.on_litellm(odd))) == 2  # retries not set, cool-downs on
