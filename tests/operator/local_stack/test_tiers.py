from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlx_stack_proxy.operator import CommandError
from mlx_stack_proxy.operator.local_stack import tiers
from mlx_stack_proxy.operator.local_stack.tiers import chosen_tiers


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "some-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
    return folder


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch, model: Path) -> Path:
    monkeypatch.setattr(tiers, "demo_model", lambda name: model)
    return model


def test_the_demo_tiers_are_the_default(demo: Path) -> None:
    fast, standard = chosen_tiers([], 8081)
    assert (fast.name, fast.port, fast.base_url) == ("fast", 8081, "http://127.0.0.1:8081")
    assert (standard.name, standard.port) == ("standard", 8082)
    assert fast.is_path
    assert fast.context_window == 4096


def test_a_tier_is_replaced_added_or_left_out(demo: Path, model: Path) -> None:
    given = ["coder=mlx-community/Coder-4bit", f"longctx={model}", "fast="]
    chosen = chosen_tiers(given, 9000)
    assert [(t.name, t.port) for t in chosen] == [
        ("standard", 9000),
        ("longctx", 9001),
        ("coder", 9002),
    ]
    assert chosen[2].model == "mlx-community/Coder-4bit"
    assert not chosen[2].is_path
    assert chosen[2].context_window is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["fast"], "NAME=MODEL"),
        (["=x"], "NAME=MODEL"),
        (["proxy=a/b"], "can't be a tier's name"),
        (["fast=/no/such/folder"], "no such folder"),
        (["fast=./relative/typo"], "no such folder"),
        ([f"fast={Path(__file__).parent}"], r"no config\.json"),
        (["fast=", "standard="], "no tier is left"),
    ],
)
def test_what_cannot_be_served_is_said(demo: Path, given: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message) as caught:
        chosen_tiers(given, 8081)
    assert "\n" not in str(caught.value)


def test_a_missing_demo_model_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "demo_model", lambda name: None)
    with pytest.raises(CommandError, match="--tier fast=MODEL"):
        chosen_tiers([], 8081)


def test_a_vision_models_context_window_is_found(tmp_path: Path) -> None:
    config = {"text_config": {"max_position_embeddings": 8192}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tier,) = chosen_tiers([f"fast={tmp_path}", "standard="], 8081)
    assert tier.context_window == 8192
