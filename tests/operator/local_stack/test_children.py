"""What the local stack writes for its children, and what they find in their environment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from mlx_stack_proxy import settings_source
from mlx_stack_proxy.operator.local_stack import children
from mlx_stack_proxy.operator.local_stack.children import ChildSpec
from mlx_stack_proxy.operator.local_stack.run_directory import RunDirectory
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier

TIERS = [
    LocalTier("small", "/models/small", 8081, True, 2048),
    LocalTier("big", "mlx-community/Big", 8082, False),
]


def test_the_proxy_config_is_one_the_proxy_takes(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    children.write_yaml(file, children.proxy_config(TIERS, 4100, 4000, tmp_path / "state.db"))
    settings = settings_source.load(str(file), environ={})
    assert settings.server.api_keys == ("*",)
    assert settings.upstream.base_url == "http://127.0.0.1:4000"
    assert list(settings.tiers) == ["small", "big"]
    assert settings.reliability.escalation.chain == ("small", "big")
    assert settings.tiers["small"].health_url == "http://127.0.0.1:8081/health"
    assert settings.tiers["small"].context_window == 2048
    assert settings.tiers["big"].context_window == 32_768


def test_litellm_neither_retries_nor_takes_a_tier_out_nor_has_a_key_written_down() -> None:
    config = children.litellm_config(TIERS)
    assert config["router_settings"] == {"disable_cooldowns": True, "num_retries": 0}
    assert config["litellm_settings"]["num_retries"] == 0
    assert [entry["model_name"] for entry in config["model_list"]] == ["small", "big"]
    parameters = config["model_list"][1]["litellm_params"]
    assert parameters["model"] == "openai/default_model"
    assert parameters["api_base"] == "http://127.0.0.1:8082/v1"
    assert config["general_settings"]["master_key"] == "os.environ/LITELLM_MASTER_KEY"


GIVEN = ("DATABASE_URL", "HF_TOKEN", "MLX_STACK_STATE__BACKEND", "MLX_STACK_SERVER__PORT", "PATH")


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda run: children.litellm(1, "key", run), {"PATH"}),
        (
            lambda run: children.litellm(1, "key", run, inside=True),
            {"PATH", "MLX_STACK_STATE__BACKEND"},
        ),
        (lambda run: children.proxy(1, "key", run), {"PATH", "MLX_STACK_STATE__BACKEND"}),
        (lambda run: children.model_server(TIERS[1], run), set(GIVEN)),
    ],
    ids=["litellm", "inside", "proxy", "model server"],
)
def test_nothing_that_is_meant_for_others(
    make: Callable[[RunDirectory], ChildSpec],
    found: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in GIVEN:
        monkeypatch.setenv(name, "given")
    with contextlib.closing(RunDirectory(tmp_path)) as run:
        assert set(GIVEN) & make(run).environment.keys() == found
