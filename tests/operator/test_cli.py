"""The command line: what each command gets, and the process's exit code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy import __version__
from mlx_stack_proxy.operator import cli, process
from mlx_stack_proxy.settings import Settings
from tests.operator.conftest import Typed
from tests.support.ports import free_port

PROGRAM = [sys.executable, "-m", "mlx_stack_proxy"]


@pytest.fixture
def served(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What `serve` would have run."""
    seen: list[Settings] = []

    def serve(settings: Settings, *_: Any) -> int:
        seen.append(settings)
        return 7

    monkeypatch.setattr(process, "serve", serve)
    return seen


def test_serve_runs_the_settings_and_ends_with_the_servers_code(
    served: list[Settings], typed: Typed
) -> None:
    typed.write("server: {port: 4200, host: localhost}", "my.yaml")
    assert typed("serve", "--config", "my.yaml").code == 7
    assert typed("serve", "--config", "my.yaml", "--port", "0", "--host", "::1").code == 7
    found = [(settings.server.host, settings.server.port) for settings in served]
    assert found == [("localhost", 4200), ("::1", 0)]


@pytest.mark.parametrize(
    ("text", "argv", "said"),
    [
        ("", ["--port", "99999"], "command line: server.port: input should be less than or equal"),
        ("", ["--port", "-1"], "command line: server.port: input should be greater than or equal"),
        ("", ["--config", "nowhere.yaml"], "nowhere.yaml: can't be read: No such file"),
        (
            "server: {api_keys: ['*']}",
            ["--host", "0.0.0.0"],
            'config.yaml and command line: server.api_keys: "*" lets anyone in',
        ),
        ("state: {backend: redis}", [], "config.yaml: state: backend `redis` needs a redis_url"),
        ("sever: 1\nstream: {mode: life}", [], "config.yaml: sever\nconfig.yaml: stream.mode"),
    ],
)
def test_serve_stops_with_a_sentence_for_each_mistake(
    text: str, argv: list[str], said: str, served: list[Settings], typed: Typed
) -> None:
    if text:
        typed.write(text)
    code, out, err = typed("serve", *argv)
    assert (code, out, served) == (2, "", [])
    lines = err.splitlines()
    assert all(line.startswith(part) for line, part in zip(lines, said.split("\n"), strict=True))


def test_ctrl_c_ends_quietly(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "serve", serve)
    assert typed("serve", "--port", "0").code == 130


@pytest.mark.parametrize(
    "argv", [[], ["sreve"], ["serve", "--port", "x"], ["serve", "--prot", "1"], ["check", "more"]]
)
def test_a_command_line_that_is_none(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: mlx-stack-proxy")


@pytest.mark.parametrize(
    "argv", [["--version"], ["--help"], *([command.name, "--help"] for command in cli.COMMANDS)]
)
def test_version_and_help(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == 0
    out = capsys.readouterr().out
    expected = [f"mlx-stack-proxy {__version__}" if argv == ["--version"] else "usage: mlx-stack"]
    if argv == ["--help"]:
        expected += [f"\n    {command.name}" for command in cli.COMMANDS]
    assert all(part in out for part in expected)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [*PROGRAM, "config", "schema"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, b"")


HOLDER = """
import socket, sys
held = socket.create_server(("127.0.0.1", int(sys.argv[-1])))
print(flush=True)
sys.stdin.read()
"""


def test_a_second_serve_says_who_has_the_port(served: list[Settings], typed: Typed) -> None:
    port = free_port()
    # By its command line the first one is a `serve` of ours.
    command = [sys.executable, "-c", HOLDER, *PROGRAM[1:], "serve", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdin is not None and first.stdout is not None
        first.stdout.readline()
        ran = typed("serve", "--port", str(port))
        first.stdin.close()
    assert (ran.code, served) == (1, [])
    assert ran.err == (
        f"port {port} (for the proxy) is in use by another "
        f"`mlx-stack-proxy serve` (process {first.pid}); stop that, or choose another with --port "
        "or server.port\n"
    )


@pytest.mark.parametrize(
    ("line", "answer"),
    [("sess", "sessions"), ("up --ins", "--inside")],
)
def test_a_shell_completes_commands_and_options(line: str, answer: str) -> None:
    program = Path(sys.executable).with_name("mlx-stack-proxy")
    asked = {"COMP_LINE": f"{program} {line}", "COMP_POINT": str(len(f"{program} {line}"))}
    environment = {**os.environ, **asked, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "bash"}
    found = subprocess.run(
        ["bash", "-c", f"'{program}' 8>&1 9>/dev/null"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.strip() == answer


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_a_shell(shell: str, typed: Typed) -> None:
    ran = typed("completion", shell)
    assert ran.code == 0 and "mlx-stack-proxy" in ran.out


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == cli.CONFIG_ERROR
    assert re.search(r"serve +run the proxy", capsys.readouterr().err)
