"""`mlx-stack-proxy service`: the command, with each manager of services."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from mlx_stack_proxy.operator import cli
from mlx_stack_proxy.operator.service import commands, launchd, machine, systemd
from mlx_stack_proxy.operator.service.machine import ServiceError
from mlx_stack_proxy.settings_source import from_mapping
from tests.operator.service.examples import ODD, program_at


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, a configuration in the working folder, and a program that is installed."""
    for name in [name for name in os.environ if name.startswith(("MLX_STACK_", "LITELLM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-secret")
    (tmp_path / "home").mkdir()
    (tmp_path / "config.yaml").write_text("server: {shutdown_grace_seconds: 60}")
    program = program_at(tmp_path / "bin" / "mlx-stack-proxy")
    monkeypatch.setattr(commands, "program", lambda: program)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def on(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = commands.manager
    monkeypatch.setattr(commands, "manager", lambda system: real(system, platform))


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_a_dry_run_shows_all_and_does_nothing(
    platform: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on(platform, monkeypatch)
    assert cli.main(["service", "install", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert str(home.parent / "config.yaml") in out
    assert "75" in out  # the grace, and a quarter of a minute
    assert "LITELLM_MASTER_KEY" in out
    assert "sk-secret" not in out
    assert list(home.iterdir()) == []
    assert cli.main(["service", "uninstall", "--dry-run"]) == 0
    assert "mlx-stack" in capsys.readouterr().out


def fake_programs(folder: Path, monkeypatch: pytest.MonkeyPatch, fails: str = "none") -> Path:
    """systemctl and its like, which write down how they were called.

    ``fails``: calls with this in them. What launchd has booted out it still prints twice. The
    service answers once its manager was told to start it.
    """
    said = folder / "called.txt"
    for name in ("systemctl", "loginctl", "journalctl", "launchctl", "tail"):
        script = program_at(folder / "fake" / name)
        script.write_text(
            f"""#!/bin/sh
            echo "{name} $*" >> {said}
            case "$*" in *{fails}*) exit 3;; esac
            case "$*" in print*) test "$(grep -c ' print ' {said})" -lt 3 || exit 1;; esac
            """
        )
    monkeypatch.setenv("PATH", f"{folder / 'fake'}:{os.environ['PATH']}")
    monkeypatch.setattr(machine, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(launchd, "answers", lambda _: said.exists() and started(said))
    monkeypatch.setattr(systemd, "LINGERING", folder / "lingering")
    return said


def started(said: Path) -> bool:
    return any(" bootstrap " in line for line in said.read_text().splitlines())


def calls(said: Path) -> list[str]:
    """The second word of each, which says what was asked for."""
    return [line.split()[1].removeprefix("--") for line in said.read_text().splitlines()]


def test_install_and_uninstall_on_linux(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("linux", monkeypatch)
    said = fake_programs(tmp_path, monkeypatch)
    assert cli.main(["service", "install"]) == 0
    unit = home / ".config/systemd/user/mlx-stack-proxy.service"
    assert f"--config {tmp_path}/config.yaml" in unit.read_text()
    env_file = home / ".mlx-stack/service.env"
    assert env_file.stat().st_mode & 0o777 == 0o600
    assert 'LITELLM_MASTER_KEY="sk-secret"' in env_file.read_text()
    assert (home / ".mlx-stack").stat().st_mode & 0o777 == 0o700
    assert "systemctl --user restart mlx-stack-proxy.service" in said.read_text()

    env_file.write_text("LITELLM_MASTER_KEY=mine\n")
    assert cli.main(["service", "install"]) == 0
    assert env_file.read_text() == "LITELLM_MASTER_KEY=mine\n", "never overwritten"

    assert cli.main(["service", "uninstall"]) == 0
    assert not unit.exists()
    assert env_file.exists()
    assert "disable --now mlx-stack-proxy.service" in said.read_text()


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_uninstalling_what_was_not_installed_says_so(
    platform: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is tried all the same: a service may run whose definition is gone."""
    on(platform, monkeypatch)
    said = fake_programs(tmp_path, monkeypatch)
    assert cli.main(["service", "install"]) == 0
    assert cli.main(["service", "uninstall"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("uninstalled; ")
    said.unlink()
    assert cli.main(["service", "uninstall"]) == 1
    out, err = capsys.readouterr()
    assert "uninstalled" not in out and err.startswith("none was installed: ")
    assert "bootout" in said.read_text() or "disable --now" in said.read_text()


def test_a_step_that_fails_ends_it_with_a_sentence(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on("linux", monkeypatch)
    said = fake_programs(tmp_path, monkeypatch, fails="daemon-reload")
    assert cli.main(["service", "install"]) == 1
    assert "daemon-reload` failed: is there a systemd" in capsys.readouterr().err
    assert "restart" not in said.read_text()


def test_launchd_is_waited_for_and_asked_again(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`bootout` returns too early, and `bootstrap` then says `Input/output error`."""
    on("darwin", monkeypatch)
    said = fake_programs(tmp_path, monkeypatch)
    launchctl = tmp_path / "fake" / "launchctl"
    calls_of_it = f"$(grep -c ' bootstrap ' {said})"
    busy = f'case "$*" in bootstrap*) test "{calls_of_it}" -ge 3 || exit 5;; esac'
    launchctl.write_text(f"{launchctl.read_text()}\n{busy}\n")
    assert cli.main(["service", "install"]) == 0
    assert calls(said) == ["bootout", *["print"] * 3, "enable", *["bootstrap"] * 3]

    said.unlink()
    launchctl.write_text(launchctl.read_text().replace("-ge 3", "-ge 99"))
    assert cli.main(["service", "install"]) == 1
    assert calls(said).count("bootstrap") == launchd.TRIES
    assert "bootstrap" in capsys.readouterr().err


def test_another_program_on_the_port_is_not_taken_for_the_service(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on("darwin", monkeypatch)
    said = fake_programs(tmp_path, monkeypatch)
    monkeypatch.setattr(launchd, "answers", lambda _: True)
    assert cli.main(["service", "install"]) == 1
    assert "http://127.0.0.1:4100/health answers" in capsys.readouterr().err
    assert not started(said)


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_what_does_not_start_is_said_with_its_own_last_words(
    platform: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on(platform, monkeypatch)
    monkeypatch.setattr(launchd, "START_SECONDS", 0.0)
    said = fake_programs(tmp_path, monkeypatch, fails="user?restart")
    monkeypatch.setattr(launchd, "answers", lambda _: False)
    assert cli.main(["service", "install"]) == 1
    out, err = capsys.readouterr()
    assert "serves" not in out
    assert "does not answer" in err or "does not start" in err
    shows = {"darwin": "tail -n 20 ", "linux": "journalctl --user-unit "}[platform]
    assert said.read_text().splitlines()[-1].startswith(shows)


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_a_restart_with_a_bad_file_stops_nothing(
    platform: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on(platform, monkeypatch)
    said = fake_programs(tmp_path, monkeypatch)
    assert cli.main(["service", "restart"]) == 1
    assert capsys.readouterr().err.startswith("none is installed: ")
    assert cli.main(["service", "install"]) == 0
    said.unlink()
    config = tmp_path / "config.yaml"
    config.write_text("servre: {}")
    assert cli.main(["service", "restart"]) == 2
    assert "unknown key `servre`" in capsys.readouterr().err
    config.write_text("server: {workers: 2}")
    assert cli.main(["service", "restart"]) == 2, "which `serve` refuses, too"
    assert not said.exists()
    config.write_text("server: {}")
    assert cli.main(["service", "restart"]) == 0
    assert "restart" in said.read_text() or "bootstrap" in said.read_text()


@pytest.mark.parametrize("lingers", [False, True])
def test_lingering_ends_only_where_install_began_it(
    lingers: bool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("linux", monkeypatch)
    said = fake_programs(tmp_path, monkeypatch)
    lingering = systemd.LINGERING / getpass.getuser()
    lingering.parent.mkdir()
    if lingers:
        lingering.touch()
    assert cli.main(["service", "install"]) == 0
    lingering.touch()  # as loginctl would
    assert cli.main(["service", "install"]) == 0
    assert calls(said).count("enable-linger") == (not lingers)
    assert cli.main(["service", "uninstall"]) == 0
    assert calls(said).count("disable-linger") == (not lingers)
    assert list((home / ".config/systemd/user").iterdir()) == []


def test_refused_lingering_is_not_ended(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("linux", monkeypatch)
    said = fake_programs(tmp_path, monkeypatch, fails="enable-linger")
    assert cli.main(["service", "install"]) == 0
    assert cli.main(["service", "uninstall"]) == 0
    assert "disable-linger" not in calls(said)


def test_a_drop_in_of_somebody_elses_is_left(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("linux", monkeypatch)
    fake_programs(tmp_path, monkeypatch)
    assert cli.main(["service", "install"]) == 0
    folder = home / ".config/systemd/user/mlx-stack-proxy.service.d"
    (folder / "override.conf").write_text("[Service]\n")
    assert cli.main(["service", "uninstall"]) == 0
    assert [file.name for file in folder.iterdir()] == ["override.conf"]


def test_the_exit_code_of_status_is_the_managers(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("darwin", monkeypatch)
    said = fake_programs(tmp_path, monkeypatch, fails="print")
    assert cli.main(["service", "status"]) == 3
    assert cli.main(["service", "logs", "-n", "7", "-f"]) == 0
    assert f"tail -n 7 -F {home}/.mlx-stack/logs/proxy.log" in said.read_text()


def test_without_the_manager_it_is_a_sentence(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    on("darwin", monkeypatch)
    assert cli.main(["service", "status"]) == 1
    assert "launchctl is not on this machine" in capsys.readouterr().err


@pytest.mark.parametrize(("platform", "system"), [("darwin", True), ("win32", False)])
def test_where_there_is_no_such_service(platform: str, system: bool) -> None:
    with pytest.raises(ServiceError):
        commands.manager(system, platform)


def test_a_configuration_that_can_not_serve_is_not_installed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on("linux", monkeypatch)
    (tmp_path / "config.yaml").write_text("servre: {}")
    assert cli.main(["service", "install"]) == 2
    assert list(home.iterdir()) == []


def test_an_environment_file_that_is_there_is_looked_at(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on("linux", monkeypatch)
    said = fake_programs(tmp_path, monkeypatch)
    env_file = home / ".mlx-stack/service.env"
    env_file.parent.mkdir()
    env_file.write_text("OTHER=1\n")
    env_file.chmod(0o644)
    assert cli.main(["service", "install"]) == 2
    assert "chmod 600" in capsys.readouterr().err and not said.exists()
    env_file.chmod(0o600)
    assert cli.main(["service", "install"]) == 0
    assert "lacks LITELLM_MASTER_KEY" in capsys.readouterr().err


def test_the_variables_are_those_that_the_configuration_names() -> None:
    cloud = {"model": "m", "api_key_env": "CLOUD_KEY"}
    settings = from_mapping({"reliability": {"escalation": {"cloud_fallback": cloud}}})
    environ = {"MLX_STACK_SERVER__ADMIN_KEY": "a", "MLX_STACK_CONFIG": "x", "PATH": "y"}
    assert commands.needed_variables(settings, environ) == {
        "LITELLM_MASTER_KEY": None,
        "CLOUD_KEY": None,
        "MLX_STACK_SERVER__ADMIN_KEY": "a",
    }


def test_the_program_is_this_installations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(ServiceError, match="install the package first"):
        commands.program()
    program_at(tmp_path / "mlx-stack-proxy")
    assert commands.program() == tmp_path / "mlx-stack-proxy"


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_what_is_installed_is_read_again(
    platform: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its path: so a restart can look whether it would start."""
    on(platform, monkeypatch)
    said = fake_programs(tmp_path, monkeypatch)
    config = tmp_path / ODD / "config.yaml"
    config.parent.mkdir()
    config.write_text("server: {}")
    assert cli.main(["service", "install", "--config", str(config)]) == 0
    command = commands.manager(False).command()
    assert command is not None and command[1:4] == ["serve", "--config", str(config)]
    config.write_text("servre: {}")
    assert cli.main(["service", "restart"]) == 2
    config.unlink()
    (tmp_path / "config.yaml").unlink()
    said.unlink()
    assert cli.main(["service", "install"]) == 0, "with the defaults, or what lies in its folder"
    assert "--config" not in (commands.manager(False).command() or [])
    (home / ".mlx-stack/config.yaml").write_text("servre: {}")
    assert cli.main(["service", "restart"]) == 2
