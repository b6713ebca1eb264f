"""`mlx-stack-proxy service`: the command, with each manager of services."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from mlx_stack_proxy.operator import CommandError
from mlx_stack_proxy.operator.service import commands, managers
from mlx_stack_proxy.settings_source import from_mapping
from tests.operator.conftest import Ran, Typed
from tests.operator.service.examples import ODD, program_at

MANAGER = commands.manager
BOTH = pytest.mark.parametrize("platform", ["darwin", "linux"])


class Service:
    """The command where `systemctl` and its like only write down how they were called.

    What launchd has booted out it still prints twice. The service answers once its manager was told
    to start it.
    """

    def __init__(self, typed: Typed, folder: Path) -> None:
        self.home = typed.home / "home"
        self.home.mkdir()
        self.typed = typed
        self.fake = folder / "fake"
        self._called = folder / "called.txt"
        self.answers = lambda: " bootstrap " in self.called
        self.fail("none")

    def __call__(self, *words: str) -> Ran:
        return self.typed("service", *words)

    def on(self, platform: str) -> None:
        self.typed.monkeypatch.setattr(
            commands, "manager", lambda system, dry=False: MANAGER(system, dry, platform)
        )

    def fail(self, calls: str) -> None:
        """Let calls with this in them fail."""
        for name in ("systemctl", "loginctl", "journalctl", "launchctl", "tail"):
            program_at(self.fake / name).write_text(
                f"""#!/bin/sh
                echo "{name} $*" >> {self._called}
                case "$*" in *{calls}*) exit 3;; esac
                case "$*" in print*)
                    test "$(grep -c ' print ' {self._called})" -lt 3 || exit 1;;
                esac
                """
            )

    @property
    def called(self) -> str:
        return self._called.read_text() if self._called.exists() else ""

    @property
    def asked(self) -> list[str]:
        """The second word of each call, which says what was asked for."""
        return [line.split()[1].removeprefix("--") for line in self.called.splitlines()]

    def forget(self) -> None:
        self._called.unlink()


@pytest.fixture
def service(tmp_path: Path, typed: Typed) -> Service:
    """An empty home, a configuration in the working folder, and a program that is installed."""
    service = Service(typed, tmp_path)
    typed.write("server: {shutdown_grace_seconds: 60}")
    program = program_at(tmp_path / "bin" / "mlx-stack-proxy")
    patch = typed.monkeypatch
    patch.setenv("HOME", str(service.home))
    patch.delenv("XDG_CONFIG_HOME", raising=False)
    patch.setenv("LITELLM_MASTER_KEY", "sk-secret")
    patch.setenv("PATH", f"{service.fake}:{os.environ['PATH']}")
    patch.setattr(commands, "program", lambda: program)
    patch.setattr(managers, "PAUSE_SECONDS", 0.0)
    patch.setattr(managers, "answers", lambda _: service.answers())
    patch.setattr(managers, "LINGERING", tmp_path / "lingering")
    service.on("linux")
    return service


@BOTH
def test_a_dry_run_shows_all_and_does_nothing(platform: str, service: Service) -> None:
    service.on(platform)
    ran = service("install", "--dry-run")
    assert ran.code == 0
    assert str(service.typed.home / "config.yaml") in ran.out
    assert "75" in ran.out  # the grace, and a quarter of a minute
    assert "LITELLM_MASTER_KEY" in ran.out
    assert "sk-secret" not in ran.out
    assert list(service.home.iterdir()) == []
    ran = service("uninstall", "--dry-run")
    assert (ran.code, "mlx-stack" in ran.out, service.called) == (0, True, "")
    service.typed.write("servre: {}")
    assert service("install").code == 2, "nor is a configuration installed that can't serve"
    assert list(service.home.iterdir()) == []


def test_install_and_uninstall_on_linux(service: Service) -> None:
    assert service("install").code == 0
    unit = service.home / ".config/systemd/user/mlx-stack-proxy.service"
    assert f"--config {service.typed.home}/config.yaml" in unit.read_text()
    env_file = service.home / ".mlx-stack/service.env"
    assert env_file.stat().st_mode & 0o777 == 0o600
    assert 'LITELLM_MASTER_KEY="sk-secret"' in env_file.read_text()
    assert (service.home / ".mlx-stack").stat().st_mode & 0o777 == 0o700
    assert "systemctl --user restart mlx-stack-proxy.service" in service.called

    env_file.write_text("LITELLM_MASTER_KEY=mine\n")
    assert service("install").code == 0
    assert env_file.read_text() == "LITELLM_MASTER_KEY=mine\n", "never overwritten"

    assert service("uninstall").code == 0
    assert not unit.exists()
    assert env_file.exists()
    assert "disable --now mlx-stack-proxy.service" in service.called


@BOTH
def test_uninstalling_what_was_not_installed_says_so(platform: str, service: Service) -> None:
    """It is tried all the same: a service may run whose definition is gone."""
    service.on(platform)
    assert service("install").code == 0
    ran = service("uninstall")
    assert (ran.code, ran.out.startswith("uninstalled; ")) == (0, True)
    service.forget()
    code, out, err = service("uninstall")
    assert (code, out, err.startswith("not installed: ")) == (1, "", True)
    assert "bootout" in service.called or "disable --now" in service.called


def test_a_step_that_fails_ends_it_with_a_sentence(service: Service) -> None:
    service.fail("daemon-reload")
    ran = service("install")
    assert (ran.code, "daemon-reload` failed: is systemd running" in ran.err) == (1, True)
    assert "restart" not in service.called


def test_launchd_is_waited_for_and_asked_again(service: Service) -> None:
    """`bootout` returns too early, and `bootstrap` then says `Input/output error`."""
    service.on("darwin")
    launchctl = service.fake / "launchctl"
    times = f"$(grep -c ' bootstrap ' {launchctl.parents[1]}/called.txt)"
    busy = f'case "$*" in bootstrap*) test "{times}" -ge 3 || exit 5;; esac'
    launchctl.write_text(f"{launchctl.read_text()}\n{busy}\n")
    assert service("install").code == 0
    assert service.asked == ["bootout", *["print"] * 3, "enable", *["bootstrap"] * 3]

    service.forget()
    launchctl.write_text(launchctl.read_text().replace("-ge 3", "-ge 99"))
    ran = service("install")
    assert (ran.code, "bootstrap" in ran.err) == (1, True)
    assert service.asked.count("bootstrap") == managers.TRIES


def test_another_program_on_the_port_is_not_taken_for_the_service(service: Service) -> None:
    service.on("darwin")
    service.answers = lambda: True
    ran = service("install")
    assert (ran.code, "http://127.0.0.1:4100/health still answers" in ran.err) == (1, True)
    assert "bootstrap" not in service.asked


@pytest.mark.parametrize(
    ("platform", "shows"), [("darwin", "tail -n 20 "), ("linux", "journalctl --user-unit ")]
)
def test_what_does_not_start_is_said_with_its_own_last_words(
    platform: str, shows: str, service: Service
) -> None:
    service.on(platform)
    service.typed.monkeypatch.setattr(managers, "START_SECONDS", 0.0)
    service.fail("user?restart")
    service.answers = lambda: False
    code, out, err = service("install")
    assert (code, "serves" in out) == (1, False)
    assert "does not answer" in err or "does not start" in err
    assert service.called.splitlines()[-1].startswith(shows)


@BOTH
def test_a_restart_with_a_bad_file_stops_nothing(platform: str, service: Service) -> None:
    service.on(platform)
    ran = service("restart")
    assert (ran.code, ran.err.startswith("not installed: ")) == (1, True)
    assert service("install").code == 0
    service.forget()
    service.typed.write("servre: {}")
    ran = service("restart")
    assert (ran.code, "unknown key `servre`" in ran.err) == (2, True)
    service.typed.write("server: {workers: 2}")
    assert service("restart").code == 2, "which `serve` refuses, too"
    assert service.called == ""
    service.typed.write("server: {}")
    assert service("restart").code == 0
    assert "restart" in service.called or "bootstrap" in service.called


@pytest.mark.parametrize("lingers", ["", "already", "refused"])
def test_lingering_ends_only_where_install_began_it(lingers: str, service: Service) -> None:
    lingering = managers.LINGERING / getpass.getuser()
    lingering.parent.mkdir()
    if lingers == "already":
        lingering.touch()
    service.fail("enable-linger" if lingers == "refused" else "none")
    assert service("install").code == 0
    if lingers != "refused":
        lingering.touch()  # as loginctl would
        assert service("install").code == 0
        assert service.asked.count("enable-linger") == (not lingers)
    assert service("uninstall").code == 0
    assert service.asked.count("disable-linger") == (not lingers)
    assert list((service.home / ".config/systemd/user").iterdir()) == []


def test_a_drop_in_of_somebody_elses_is_left(service: Service) -> None:
    assert service("install").code == 0
    folder = service.home / ".config/systemd/user/mlx-stack-proxy.service.d"
    (folder / "override.conf").write_text("[Service]\n")
    assert service("uninstall").code == 0
    assert [file.name for file in folder.iterdir()] == ["override.conf"]


def test_the_exit_code_of_status_is_the_managers(service: Service) -> None:
    service.on("darwin")
    service.fail("print")
    assert service("status").code == 3
    assert service("logs", "-n", "7", "-f").code == 0
    assert f"tail -n 7 -F {service.home}/.mlx-stack/logs/proxy.log" in service.called


def test_without_the_manager_it_is_a_sentence(service: Service) -> None:
    service.on("darwin")
    service.typed.monkeypatch.setenv("PATH", "/nowhere")
    ran = service("status")
    assert (ran.code, "launchctl is not installed" in ran.err) == (1, True)


@pytest.mark.parametrize(("platform", "system"), [("darwin", True), ("win32", False)])
def test_where_there_is_no_such_service(platform: str, system: bool) -> None:
    with pytest.raises(CommandError):
        commands.manager(system, platform=platform)


def test_an_environment_file_that_is_there_is_looked_at(service: Service) -> None:
    env_file = service.typed.write("OTHER=1\n", "home/.mlx-stack/service.env")
    env_file.chmod(0o644)
    ran = service("install")
    assert (ran.code, "chmod 600" in ran.err, service.called) == (2, True, "")
    env_file.chmod(0o600)
    ran = service("install")
    assert (ran.code, "lacks LITELLM_MASTER_KEY" in ran.err) == (0, True)


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
    with pytest.raises(CommandError, match="install the package first"):
        commands.program()
    program_at(tmp_path / "mlx-stack-proxy")
    assert commands.program() == tmp_path / "mlx-stack-proxy"


@BOTH
def test_what_is_installed_is_read_again(platform: str, service: Service) -> None:
    """Whatever its path: so a restart can look whether it would start."""
    service.on(platform)
    config = service.typed.write("server: {}", f"{ODD}/config.yaml")
    assert service("install", "--config", str(config)).code == 0
    command = commands.manager(False).command()
    assert command is not None and command[1:4] == ["serve", "--config", str(config)]
    config.write_text("servre: {}")
    assert service("restart").code == 2
    config.unlink()
    (service.typed.home / "config.yaml").unlink()
    service.forget()
    assert service("install").code == 0, "with the defaults, or what lies in its folder"
    assert "--config" not in (commands.manager(False).command() or [])
    service.typed.write("servre: {}", "home/.mlx-stack/config.yaml")
    assert service("restart").code == 2
