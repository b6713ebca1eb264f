"""The command line: what each command gets, and the process's exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy import __version__
from mlx_stack_proxy.operator import check, cli
from mlx_stack_proxy.server import process
from mlx_stack_proxy.settings import Settings
from tests.support.ports import free_port


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLX_STACK_CONFIG", raising=False)
    return tmp_path


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What `serve` would have run."""
    seen: list[Settings] = []

    def serve(settings: Settings, **_: Any) -> int:
        seen.append(settings)
        return 7

    monkeypatch.setattr(process, "serve", serve)
    return seen


def stopped(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """The exit code of a command that must not have printed anything but one complaint."""
    code = cli.main(argv)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return code, err.strip()


def test_serve_runs_the_settings_and_ends_with_the_servers_code(
    served: list[Settings], bare: Path
) -> None:
    (bare / "my.yaml").write_text("server: {port: 4200, host: localhost}")
    assert cli.main(["serve", "--config", "my.yaml"]) == 7
    assert cli.main(["serve", "--config", "my.yaml", "--port", "0", "--host", "::1"]) == 7
    found = [(settings.server.host, settings.server.port) for settings in served]
    assert found == [("localhost", 4200), ("::1", 0)]


def test_an_address_of_the_command_line_changes_nothing_else(
    served: list[Settings], bare: Path
) -> None:
    (bare / "config.yaml").write_text(
        "tiers: {b: {tools: false}, a: }\nserver: {api_keys: ['*']}\n"
        "reliability: {memory_pressure: {source: off}}"
    )
    cli.main(["serve"])
    cli.main(["serve", "--port", "4100"])
    assert served[0] == served[1]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--port", "99999"], "command line: server.port: input should be less than or equal"),
        (["--port", "-1"], "command line: server.port: input should be greater than or equal"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: can't be read: No such file"),
    ],
)
def test_serve_stops_with_a_sentence(
    argv: list[str], said: str, served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = stopped(capsys, "serve", *argv)
    assert code == 2
    assert err.startswith(said)
    assert served == []


def test_serve_does_not_open_to_the_network_for_any_key(
    served: list[Settings], bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (bare / "config.yaml").write_text("server: {api_keys: ['*']}")
    code, err = stopped(capsys, "serve", "--host", "0.0.0.0")
    assert (code, served) == (2, [])
    assert err.startswith('command line: server.api_keys: "*" lets anyone in')


def test_serve_says_every_mistake(
    served: list[Settings], bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (bare / "config.yaml").write_text("sever: 1\nstream: {mode: life}")
    code, err = stopped(capsys, "serve")
    assert (code, served) == (2, [])
    assert [line.split(":")[:2] for line in err.splitlines()] == [
        ["config.yaml", " sever"],
        ["config.yaml", " stream.mode"],
    ]


def test_serve_with_redis_wants_its_address(
    served: list[Settings], bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (bare / "config.yaml").write_text("state: {backend: redis}")
    code, err = stopped(capsys, "serve")
    assert (code, served) == (2, [])
    assert "state: backend `redis` needs a redis_url" in err


@pytest.mark.parametrize("code", [0, 1])
def test_check_gets_its_file_and_gives_its_code(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str | None, bool, bool]] = []

    def run(file: str | None, *, probe: bool, cloud: bool) -> int:
        seen.append((file, probe, cloud))
        return code

    monkeypatch.setattr(check, "check", run)
    assert cli.main(["check", "--config", "c.yaml"]) == code
    assert cli.main(["check", "--no-probe"]) == code
    assert cli.main(["check", "--cloud"]) == code
    assert seen == [("c.yaml", True, False), (None, False, False), (None, True, True)]


def test_ctrl_c_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "serve", serve)
    assert cli.main(["serve"]) == 130


@pytest.mark.parametrize(
    "argv", [[], ["sreve"], ["serve", "--port", "x"], ["serve", "--prot", "1"], ["check", "more"]]
)
def test_a_command_line_that_is_none(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: mlx-stack-proxy")


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for argument in ("--version", "--help"):
        with pytest.raises(SystemExit) as caught:
            cli.main([argument])
        assert caught.value.code == 0
    out = capsys.readouterr().out
    assert f"mlx-stack-proxy {__version__}" in out
    assert all(command in out for command in ("serve", "check", "up"))


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlx_stack_proxy", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stdout) == (0, f"mlx-stack-proxy {__version__}\n")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "mlx_stack_proxy", "config", "schema"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, b"")


def test_check_knows_that_workers_need_a_state_they_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("server: {workers: 2}\n")
    assert cli.main(["check", "--no-probe", "--config", str(file)]) == 1
    assert "server.workers: 2 processes need a state" in capsys.readouterr().out


def test_a_second_serve_says_who_has_the_port(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "mlx_stack_proxy", "serve", "--port", str(port)]
    environment = {**os.environ, "MLX_STACK_STATE__BACKEND": "memory"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as first:
        assert first.stderr is not None
        for line in first.stderr:
            if "listening" in line:
                break
        second = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        first.terminate()
    assert second.returncode == 1
    assert second.stderr == (
        f"mlx-stack-proxy serve: port {port} (for the proxy) is taken by another "
        f"`mlx-stack-proxy serve` (process {first.pid}); end that, or choose another with --port "
        "or server.port\n"
    )


def test_a_shell_completes_the_commands() -> None:
    program = Path(sys.executable).with_name("mlx-stack-proxy")
    asked = {"COMP_LINE": f"{program} sess", "COMP_POINT": str(len(f"{program} sess"))}
    environment = {**os.environ, **asked, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "bash"}
    answer = subprocess.run(
        ["bash", "-c", f"'{program}' 8>&1 9>/dev/null"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout.strip() == "sessions"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "mlx-stack-proxy" in capsys.readouterr().out
