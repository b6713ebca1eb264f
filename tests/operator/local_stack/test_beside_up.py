"""Commands beside a running `up`: they take its configuration and LiteLLM's key."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlx_stack_proxy.operator.local_stack import configs
from mlx_stack_proxy.operator.local_stack.run_directory import (
    RunDirectory,
    litellm_beside,
    open_run_directory,
    running_at,
    running_config,
    take_key,
    usual_folder,
)
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier

KEY = "sk-made-anew"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(params=["usual", "elsewhere"])
def running(request: pytest.FixtureRequest, home: Path) -> Iterator[RunDirectory]:
    given = None if request.param == "usual" else str(home / "elsewhere")
    directory = open_run_directory(given)
    directory.keep_key(KEY)
    yield directory
    directory.close()


@pytest.fixture
def litellm() -> Iterator[str]:
    """The address of a LiteLLM, which this process stands for."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_where_none_runs_nothing_is_taken(home: Path, litellm: str) -> None:
    assert running_config() is None
    assert take_key({}, litellm) is None


def test_the_key_of_the_litellm_that_it_started_is_taken(
    running: RunDirectory, litellm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ: dict[str, str] = {}
    assert take_key(environ, litellm) is None, "it runs elsewhere, and is another"
    monkeypatch.chdir(running.path)
    assert running_at(litellm) == running.path
    assert take_key(environ, litellm) == running.key
    assert environ == {configs.KEY_VARIABLE: KEY}
    assert running.key.stat().st_mode & 0o777 == 0o600
    assert take_key({configs.KEY_VARIABLE: "mine"}, litellm) is None
    assert take_key({}, "http://192.0.2.1:4000") is None


def test_the_configuration_is_that_of_the_usual_folder(running: RunDirectory) -> None:
    usual = running.path == usual_folder()
    assert running_config() == (running.proxy_config if usual else None)


def test_at_its_end_the_key_is_gone(home: Path) -> None:
    directory = open_run_directory(None)
    directory.keep_key(KEY)
    directory.close()
    assert not directory.key.exists()
    assert running_config() is None


def test_what_a_killed_one_left_is_not_taken(
    home: Path, litellm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = usual_folder()
    folder.mkdir(parents=True)
    (folder / "up.lock").touch()
    (folder / "key.env").write_text("LITELLM_MASTER_KEY=sk-old\n")
    os.chmod(folder / "key.env", 0o600)
    monkeypatch.chdir(folder)
    assert running_config() is None
    assert take_key({}, litellm) is None


def test_inside_litellm_it_listens_where_clients_ask(running: RunDirectory) -> None:
    """The configuration doesn't say where LiteLLM is; `check` asks it all the same."""
    config, tiers = running.proxy_config, [LocalTier("fast", "/model", 8081, True)]
    configs.write_yaml(config, configs.proxy_config(tiers, 4100, 4000, running.state))
    assert litellm_beside(config) == "http://127.0.0.1:4000"
    configs.write_yaml(config, configs.inside_config(tiers, 4105, running.state))
    assert litellm_beside(config) == "http://127.0.0.1:4105"
    assert litellm_beside(config.with_name("other.yaml")) is None
