"""`serve` as a manager of services or a cluster starts it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from mlx_stack_proxy.operator import cli, process
from mlx_stack_proxy.settings_source import SettingsError, load, service_links
from tests.support.ports import free_port
from tests.support.proxy_process import GENEROUS

# What kubelet sets for the Service of deploy/kubernetes/proxy.yaml.
SERVICE = {
    "MLX_STACK_PROXY_SERVICE_HOST": "10.96.7.12",
    "MLX_STACK_PROXY_SERVICE_PORT": "4100",
    "MLX_STACK_PROXY_SERVICE_PORT_HTTP": "4100",
    "MLX_STACK_PROXY_PORT": "tcp://10.96.7.12:4100",
    "MLX_STACK_PROXY_PORT_4100_TCP": "tcp://10.96.7.12:4100",
    "MLX_STACK_PROXY_PORT_4100_TCP_PROTO": "tcp",
    "MLX_STACK_PROXY_PORT_4100_TCP_PORT": "4100",
    "MLX_STACK_PROXY_PORT_4100_TCP_ADDR": "10.96.7.12",
}


def test_systemd_is_told_when_it_serves_and_a_service_of_kubernetes_is_no_setting(
    tmp_path: Path,
) -> None:
    log, heard = tmp_path / "log", tmp_path / "notify"
    program = [sys.executable, "-m", "mlx_stack_proxy", "serve", "--port", str(free_port())]
    given = {
        **{name: value for name, value in os.environ.items() if "MLX_STACK" not in name},
        **{"MLX_STACK_STATE__BACKEND": "memory", "PYTHONPATH": str(Path(cli.__file__).parents[2])},
        **{"NOTIFY_SOCKET": str(heard), **SERVICE},
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, log.open("wb") as out:
        manager.bind(str(heard))
        manager.settimeout(GENEROUS)
        with subprocess.Popen(program, cwd=tmp_path, env=given, stderr=out) as serving:
            try:
                assert manager.recv(100) == b"READY=1"
            finally:
                serving.terminate()
                serving.wait(GENEROUS)
    said = log.read_text()
    assert "listening" in said
    assert "service_links_passed_over" in said
    assert all(name in said for name in SERVICE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MLX_STACK_SERVER_PORT", "4200"),
        ("MLX_STACK_PORT", "4200"),
        ("MLX_STACK_SERVR__PORT", "tcp://10.96.7.12:4100"),
    ],
)
def test_a_slip_is_still_refused(name: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="unknown section"):
        load(None, {name: value}, tmp_path)


def test_a_setting_is_never_a_service_link() -> None:
    ours = {"MLX_STACK_SERVER__PORT": "4200", "MLX_STACK_CONFIG": "x", "PROXY_PORT": "tcp://x:1"}
    assert service_links(ours) == []
    assert service_links(SERVICE) == sorted(SERVICE)


@pytest.fixture
def unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder in which this process, as whom it runs, may not look."""
    assert process  # imported while this process may look anywhere, as the commands are:
    for command in cli.COMMANDS:
        import_module(f"mlx_stack_proxy.operator.{command.module}")
    folder = tmp_path / "unreadable"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.chmod(0)
    before = os.geteuid()
    "127.0.0.1".encode("idna")  # a module of Python's own, which may lie where only root reads
    if before == 0:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        os.seteuid(before)
        folder.chmod(0o700)


@pytest.mark.parametrize(
    ("command", "code", "more"),
    [
        (["serve"], 2, ""),
        (["service", "install", "--dry-run"], 2, ""),
        (["status"], 1, "; only the proxy's address is taken from it"),  # it works all the same
    ],
)
def test_an_unreadable_working_folder_is_a_sentence(
    command: list[str], code: int, more: str, unreadable: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command) == code
    said = capsys.readouterr().err.splitlines()
    sentence = "config.yaml: can't be found in the working folder: Permission denied"
    assert said[0] == sentence + more
    assert code == 1 or len(said) == 1
