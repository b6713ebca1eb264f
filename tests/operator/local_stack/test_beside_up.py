"""Commands with a running `up`: they take its configuration and LiteLLM's key."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlx_stack_proxy.operator import check, cli
from mlx_stack_proxy.operator.local_stack import children
from mlx_stack_proxy.operator.local_stack.run_directory import (
    KEY_VARIABLE,
    USUAL,
    RunDirectory,
    running_at,
    take_key,
)
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier
from mlx_stack_proxy.settings import Settings

KEY = "sk-made-anew"


class Told:
    """What `check` would ask about."""

    settings: Settings

    async def __call__(self, settings: Settings, **_: bool) -> int:
        self.settings = settings
        return 0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(params=["usual", "elsewhere"])
def running(request: pytest.FixtureRequest, home: Path) -> Iterator[RunDirectory]:
    directory = RunDirectory(USUAL if request.param == "usual" else home / "elsewhere")
    directory.keep_key(KEY)
    yield directory
    directory.close()


@pytest.fixture
def litellm() -> Iterator[str]:
    """The address of a LiteLLM, which this process stands for."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_where_none_runs_nothing_is_taken(home: Path, litellm: str) -> None:
    assert take_key({}, litellm) is None


def test_the_key_of_the_litellm_that_it_started_is_taken(
    running: RunDirectory, litellm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ: dict[str, str] = {}
    assert take_key(environ, litellm) is None, "it runs elsewhere, and is another"
    monkeypatch.chdir(running.path)
    assert running_at(litellm) == running.path
    assert take_key(environ, litellm) == running.key
    assert environ == {KEY_VARIABLE: KEY}
    assert running.key.stat().st_mode & 0o777 == 0o600
    assert take_key({KEY_VARIABLE: "mine"}, litellm) is None
    assert take_key({}, "http://192.0.2.1:4000") is None


@pytest.mark.parametrize("running", ["elsewhere"], indirect=True)
@pytest.mark.parametrize(("inside", "named"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_check_takes_the_configuration_of_the_one_on_its_port(
    running: RunDirectory,
    litellm: str,
    inside: int,
    named: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With `--inside` it doesn't say where LiteLLM is, which is where clients ask."""
    port, tiers = int(litellm.rpartition(":")[2]), [LocalTier("only", "/model", 8081, True)]
    config = children.proxy_config(tiers, port, None if inside else 1, running.state)
    children.write_yaml(running.proxy_config, config)
    monkeypatch.chdir(running.path)
    monkeypatch.setenv("MLX_STACK_SERVER__PORT", str(port))
    monkeypatch.setenv(KEY_VARIABLE, "")
    monkeypatch.setattr(check, "_run", told := Told())
    assert cli.main(["check", *(["--config", str(running.proxy_config)] if named else [])]) == 0
    assert list(told.settings.tiers) == ["only"]
    assert told.settings.upstream.base_url == (litellm if inside else "http://127.0.0.1:1")
