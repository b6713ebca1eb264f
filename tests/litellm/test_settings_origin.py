"""Which file a layer inside LiteLLM reads, and what it refuses there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlx_stack_proxy.litellm.settings_origin import origin_next_to
from mlx_stack_proxy.settings_source import SettingsError

TIERS = {"tiers": {"small": None, "large": None}}


@pytest.fixture(autouse=True)
def litellm_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLX_STACK_CONFIG", raising=False)
    monkeypatch.delenv("NUM_WORKERS", raising=False)
    return tmp_path / "litellm.yaml"


def write(file: Path, **config: Any) -> None:
    file.write_text(yaml.safe_dump({**TIERS, **config}, sort_keys=False))


def refusal(litellm_file: Path) -> str:
    with pytest.raises(SettingsError) as refused:
        origin_next_to(str(litellm_file)).read()
    return str(refused.value)


def test_the_file_beside_litellms(litellm_file: Path) -> None:
    write(litellm_file.with_name("config.yaml"))
    assert list(origin_next_to(str(litellm_file)).read().tiers) == ["small", "large"]


def test_the_file_that_the_environment_names(
    litellm_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(litellm_file.with_name("ours.yaml"))
    monkeypatch.setenv("MLX_STACK_CONFIG", str(litellm_file.with_name("ours.yaml")))
    beside = litellm_file.with_name("config.yaml")  # LiteLLM's own may be called so then
    assert list(origin_next_to(str(beside)).read().tiers) == ["small", "large"]


def test_without_a_file_the_defaults(litellm_file: Path) -> None:
    assert "fast" in origin_next_to(str(litellm_file)).read().tiers


def test_litellms_own_file_is_not_ours(litellm_file: Path) -> None:
    own = litellm_file.with_name("config.yaml")
    own.write_text("model_list: []")
    assert "is LiteLLM's own" in refusal(own)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("server", "api_keys", ["sk-1"]),
        ("server", "workers", 2),
        ("server", "passthrough_paths", ["GET /v1/files"]),
        ("server", "shutdown_grace_seconds", 5),
        ("upstream", "base_url", "http://127.0.0.1:4001"),
    ],
)
def test_what_cannot_hold_is_refused(
    litellm_file: Path, section: str, key: str, value: object
) -> None:
    write(litellm_file.with_name("config.yaml"), **{section: {key: value}})
    assert f"{section}.{key}: can't be set inside LiteLLM" in refusal(litellm_file)


def test_several_processes_need_one_state(
    litellm_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUM_WORKERS", "2")  # as LiteLLM's --num_workers sets it
    assert "2 processes, and `sqlite` is one process's alone" in refusal(litellm_file)
    state = {"backend": "redis", "redis_url": "redis://127.0.0.1:6379/0"}
    write(litellm_file.with_name("config.yaml"), state=state)
    origin_next_to(str(litellm_file)).read()


def test_no_call_is_made_with_a_key_of_ours(
    litellm_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-master")
    assert origin_next_to(str(litellm_file)).read().upstream.api_key_env is None


def test_the_proxy_imports_no_litellm() -> None:
    code = (
        "import sys, mlx_stack_proxy.main, mlx_stack_proxy.litellm.settings_origin;"
        "print([name for name in sys.modules if name.partition('.')[0] == 'litellm'])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert said.stdout == "[]\n"
