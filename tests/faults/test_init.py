"""`mlx-stack-proxy init` and `check` before a real LiteLLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import check, cli
from app.settings_source import load
from tests.faults.litellm import LiteLLM


def test_init_before_a_real_litellm(
    litellm: LiteLLM,
    behind_ports: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LITELLM_MASTER_KEY", litellm.key)
    assert cli.main(["init", "--base-url", litellm.url]) == 0
    settings = load("config.yaml", {})
    assert {name: tier.model for name, tier in settings.tiers.items()} == {
        "fast": "fast",
        "standard": "standard",
    }
    text = (tmp_path / "config.yaml").read_text(encoding="utf-8")
    for tier in ("fast", "standard"):  # where its server is: LiteLLM tells it, we were not told
        assert (
            f"localhost:{behind_ports[tier]}" in text or f"127.0.0.1:{behind_ports[tier]}" in text
        )
    assert check.run("config.yaml", probe=False) == 0, capsys.readouterr().out
