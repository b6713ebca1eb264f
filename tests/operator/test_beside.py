"""Commands beside a running `up`: they take its configuration and LiteLLM's key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlx_stack_proxy.operator.local_stack import beside, configs
from mlx_stack_proxy.operator.local_stack.run_directory import (
    RunDirectory,
    open_run_directory,
    usual_folder,
)
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier

LITELLM = "http://127.0.0.1:4000"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def running(home: Path) -> Iterator[RunDirectory]:
    directory = open_run_directory(None)
    tier = LocalTier("fast", "/model", 8081, True)
    configs.write_yaml(
        directory.proxy_config, configs.proxy_config([tier], 4100, 4000, directory.state)
    )
    directory.keep_key(configs.KEY_VARIABLE, "sk-made-anew")
    yield directory
    directory.close()


def test_where_none_runs_nothing_is_taken(home: Path) -> None:
    assert beside.running_config() is None
    assert beside.take_key({}, LITELLM) is None


def test_the_key_of_the_litellm_that_it_started_is_taken(running: RunDirectory) -> None:
    environ: dict[str, str] = {}
    assert beside.running_config() == running.proxy_config
    assert beside.take_key(environ, LITELLM) == running.key
    assert environ == {configs.KEY_VARIABLE: "sk-made-anew"}
    assert running.key.stat().st_mode & 0o777 == 0o600


def test_the_key_of_another_run_directory_is_taken_with_its_configuration(
    home: Path, tmp_path: Path
) -> None:
    directory = open_run_directory(tmp_path / "elsewhere")
    tier = LocalTier("fast", "/model", 8081, True)
    given = configs.proxy_config([tier], 4100, 4000, directory.state)
    configs.write_yaml(directory.proxy_config, given)
    directory.keep_key(configs.KEY_VARIABLE, "sk-made-anew")
    assert beside.take_key({}, LITELLM) is None
    assert beside.take_key({}, LITELLM, directory.proxy_config) == directory.key
    directory.close()
    assert beside.take_key({}, LITELLM, directory.proxy_config) is None


def test_inside_litellm_it_listens_where_clients_ask(running: RunDirectory) -> None:
    """The configuration doesn't say where LiteLLM is; `check` and `demo` ask it all the same."""
    config = running.proxy_config
    assert beside.litellm_beside(config) == LITELLM
    tier = LocalTier("fast", "/model", 8081, True)
    configs.write_yaml(config, configs.inside_config([tier], 4105, running.state))
    assert beside.litellm_beside(config) == "http://127.0.0.1:4105"
    assert beside.take_key({}, "http://127.0.0.1:4105", config) == running.key
    assert beside.litellm_beside(config.with_name("other.yaml")) is None


@pytest.mark.parametrize(
    ("environ", "url"),
    [({configs.KEY_VARIABLE: "mine"}, LITELLM), ({}, "http://127.0.0.1:4001")],
)
def test_a_key_of_ones_own_or_another_litellm_stays(
    running: RunDirectory, environ: dict[str, str], url: str
) -> None:
    before = dict(environ)
    assert beside.take_key(environ, url) is None
    assert environ == before


def test_at_its_end_the_key_is_gone(home: Path) -> None:
    directory = open_run_directory(None)
    directory.keep_key(configs.KEY_VARIABLE, "sk-made-anew")
    directory.close()
    assert not directory.key.exists()
    assert beside.running_config() is None


def test_what_a_killed_one_left_is_not_taken(home: Path) -> None:
    folder = usual_folder()
    folder.mkdir(parents=True)
    (folder / "up.lock").touch()
    (folder / "key.env").write_text("LITELLM_MASTER_KEY=sk-old\n")
    os.chmod(folder / "key.env", 0o600)
    assert beside.running_config() is None
