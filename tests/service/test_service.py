"""`mlx-stack-proxy service`: what it writes and runs, for each manager of services."""

from __future__ import annotations

import argparse
import os
import plistlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app import cli
from app.service import commands, systemd
from app.service import spec as specs
from app.service.launchd import Launchd
from app.service.spec import Spec
from app.service.steps import (
    MakeFolder,
    Remove,
    Run,
    ServiceError,
    Step,
    WriteFile,
    carry_out,
    show,
)
from app.service.systemd import SystemUnit, UserUnit, quoted
from app.settings_source import from_mapping

ROOT = Path(__file__).parents[2]
# Names that XML, a unit file or a shell would each read as something else.
ODD = 'R&D <1> 100% $HOME "x" it\'s'


def spec(folder: Path, **changes: Any) -> Spec:
    given: dict[str, Any] = {
        "program": Path("/opt/mlx-stack-proxy/bin/mlx-stack-proxy"),
        "config": Path("/etc/mlx-stack-proxy/config.yaml"),
        "folder": folder,
        "state_folder": folder,
        "env_file": folder / "service.env",
        "stop_seconds": 45,
        "variables": {"LITELLM_MASTER_KEY": "sk-secret", "OPENROUTER_API_KEY": None},
    }
    return Spec(**{**given, **changes})


def written(steps: list[Step], name: str) -> WriteFile:
    found = [s for s in steps if isinstance(s, WriteFile) and s.path.name == name]
    assert len(found) == 1
    return found[0]


# --- launchd ---------------------------------------------------------------------------------

# launchd.plist(5): the keys that we use, and what each has to be.
LAUNCHD_KEYS: dict[str, type] = {
    "Label": str,
    "ProgramArguments": list,
    "WorkingDirectory": str,
    "RunAtLoad": bool,
    "KeepAlive": bool,
    "ThrottleInterval": int,
    "ExitTimeOut": int,
    "ProcessType": str,
    "SoftResourceLimits": dict,
    "Umask": int,
    "StandardOutPath": str,
    "StandardErrorPath": str,
}


def check_plist(data: dict[str, Any]) -> None:
    assert {key: type(value) for key, value in data.items()} == LAUNCHD_KEYS
    assert all(type(word) is str for word in data["ProgramArguments"])
    assert Path(data["ProgramArguments"][0]).is_absolute()
    assert data["ProcessType"] in ("Background", "Standard", "Adaptive", "Interactive")
    assert set(data["SoftResourceLimits"]) == {"NumberOfFiles"}
    assert data["Umask"] == 0o077
    assert data["StandardOutPath"] == data["StandardErrorPath"]


def test_the_agent(tmp_path: Path) -> None:
    folder = tmp_path / ODD
    agent = Launchd(tmp_path, folder)
    steps = agent.install(spec(folder, stop_seconds=75))
    step = written(steps, "com.mlx-stack.proxy.plist")
    assert step.path == tmp_path / "Library/LaunchAgents/com.mlx-stack.proxy.plist"
    assert "@" not in step.content
    data = plistlib.loads(step.content.encode(), fmt=plistlib.FMT_XML)
    check_plist(data)
    log = str(folder / "logs" / "proxy.log")
    assert data["ProgramArguments"] == [
        *("/opt/mlx-stack-proxy/bin/mlx-stack-proxy", "serve"),
        *("--config", "/etc/mlx-stack-proxy/config.yaml"),
        *("--env-file", str(folder / "service.env"), "--log-file", log),
    ]
    assert data["ExitTimeOut"] == 75
    assert data["StandardErrorPath"] == log
    assert MakeFolder(folder / "logs") in steps


def test_the_agents_arguments_are_ones_that_the_command_takes(tmp_path: Path) -> None:
    plist = plistlib.loads(Launchd(tmp_path, tmp_path).plist(spec(tmp_path)).encode())
    args = cli._parser().parse_args(plist["ProgramArguments"][1:])
    assert args.env_file == tmp_path / "service.env"
    assert args.log_file == tmp_path / "logs" / "proxy.log"


def test_the_agent_is_loaded_anew(tmp_path: Path) -> None:
    agent = Launchd(tmp_path, tmp_path)
    target = f"gui/{os.getuid()}/com.mlx-stack.proxy"
    runs = [step for step in agent.install(spec(tmp_path)) if isinstance(step, Run)]
    assert runs == [
        Run(("launchctl", "bootout", target), may_fail=True),
        Run(("launchctl", "enable", target)),
        Run(("launchctl", "bootstrap", f"gui/{os.getuid()}", str(agent.definition))),
    ]
    assert agent.uninstall() == [runs[0], Remove(agent.definition)]
    assert agent.restart() == Run(("launchctl", "kickstart", "-k", target))
    assert agent.logs(5, True).argv == ("tail", "-n", "5", "-F", str(agent.log))


# --- systemd ---------------------------------------------------------------------------------


def verified(folder: Path, *arguments: str) -> None:
    """`systemd-analyze verify` finds nothing to say."""
    program = shutil.which("systemd-analyze")
    if program is None:  # of the system, and not on every one
        pytest.skip("the program systemd-analyze is missing")
    done = subprocess.run(
        [program, "verify", "--man=no", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:", "XDG_RUNTIME_DIR": str(folder)},
    )
    said = [line for line in done.stderr.splitlines() if "mlx-stack-proxy" in line]
    assert (done.returncode, said) == (0, []), done.stderr


def program_at(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("kind", ["user", "system"])
def test_a_unit_that_systemd_takes(kind: str, tmp_path: Path) -> None:
    program = program_at(tmp_path / "R&D <1> 100% $HOME" / "mlx-stack-proxy")
    folder = tmp_path / "with blanks 5%"
    folder.mkdir()
    unit = systemd.unit(kind, spec(folder, program=program, config=tmp_path / ODD))
    file = tmp_path / "units" / systemd.UNIT
    file.parent.mkdir()
    file.write_text(unit)
    verified(file.parent, *(("--user",) if kind == "user" else ()), str(file))


def test_the_sandbox_of_a_user_is_one_that_systemd_takes(tmp_path: Path) -> None:
    manager = UserUnit(tmp_path)
    manager.sandboxed = True
    folder = tmp_path / "state 5%"
    given = spec(folder, program=program_at(tmp_path / "mlx-stack-proxy"))
    steps = manager.install(given)
    step = written(steps, "sandbox.conf")
    assert step.path == tmp_path / "systemd/user/mlx-stack-proxy.service.d/sandbox.conf"
    assert f'ReadWritePaths="{tmp_path}/state 5%%"' in step.content
    for one in steps:
        if isinstance(one, WriteFile):
            carry_out([one])
    verified(manager.definition.parent, "--user", str(manager.definition))


def lines_of(unit: str) -> dict[str, str]:
    plain = [line for line in unit.splitlines() if "=" in line and not line.startswith("#")]
    return {line.partition("=")[0]: line.partition("=")[2] for line in plain}


@pytest.mark.parametrize("kind", ["user", "system"])
def test_a_unit_says_what_it_should(kind: str, tmp_path: Path) -> None:
    said = lines_of(systemd.unit(kind, spec(tmp_path, stop_seconds=75)))
    assert said["ExecStart"] == (
        "/opt/mlx-stack-proxy/bin/mlx-stack-proxy serve --config /etc/mlx-stack-proxy/config.yaml"
    )
    assert said["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert said["EnvironmentFile"] == f"-{tmp_path}/service.env"
    assert said["TimeoutStopSec"] == "75"
    assert said["Restart"] == "always"
    assert said["NoNewPrivileges"] == "yes"
    if kind == "system":
        assert said["ProtectSystem"] == "strict"
        assert said["ReadWritePaths"] == "/var/lib/mlx-stack-proxy"
        assert said["DynamicUser"] == "yes"


def test_the_units_leave_the_memory_pressure_to_be_read() -> None:
    """`ProcSubset=pid` would hide /proc/pressure."""
    for file in (ROOT / "deploy" / "systemd").rglob("*"):
        assert file.is_dir() or "ProcSubset=" not in file.read_text(), file


def test_a_program_with_quotes_in_its_path_is_refused(tmp_path: Path) -> None:
    for name in ("it's", 'a"b', "a\\b"):
        with pytest.raises(ServiceError, match="quotes"):
            systemd.unit("user", spec(tmp_path, program=tmp_path / name))


def test_a_system_unit_is_refused_what_it_could_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/usr/bin/env")
    for place in ("/home/ada/bin/mlx-stack-proxy", "/root/.local/bin/mlx-stack-proxy"):
        with pytest.raises(ServiceError, match=r"does not see.*--user"):
            SystemUnit().install(spec(tmp_path, program=Path(place)))
    with pytest.raises(ServiceError, match=r"/home/ada/config.yaml is below /home"):
        SystemUnit().install(spec(tmp_path, config=Path("/home/ada/config.yaml")))


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("/plain/path", "/plain/path"),
        ("/with blank", '"/with blank"'),
        ('/a"b\\c', '"/a\\"b\\\\c"'),
        ("/100%", "/100%%"),
        ("/$HOME", '"/$$HOME"'),
    ],
)
def test_words_of_a_command_line(word: str, shown: str) -> None:
    assert quoted(word, argument=True) == shown


def test_a_line_end_in_a_path_makes_no_second_line() -> None:
    with pytest.raises(ServiceError, match="control"):
        quoted("/a\nExecStartPre=/bin/x")


@pytest.mark.parametrize("says", systemd._NO_NAMESPACES, ids=lambda pair: pair[0].name)
def test_a_kernel_without_namespaces_gets_a_unit_without_them(
    says: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "_says", lambda file: says[1] if file == says[0] else "")
    manager = UserUnit(tmp_path)
    steps = manager.install(spec(tmp_path))
    assert not [s for s in steps if isinstance(s, WriteFile) and s.path.name == "sandbox.conf"]
    assert any("namespaces" in note for note in manager.notes())
    monkeypatch.setattr(systemd, "_says", lambda file: "")
    assert UserUnit(tmp_path).notes() == []


# --- the command -----------------------------------------------------------------------------


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
    monkeypatch.setattr(specs, "find_program", lambda: program)
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
    for action in ("uninstall", "status", "restart", "logs"):
        assert cli.main(["service", action, "--dry-run"]) == 0
        assert "mlx-stack" in capsys.readouterr().out
    assert list(home.iterdir()) == []


def fake_programs(folder: Path, monkeypatch: pytest.MonkeyPatch, fails: str = "none") -> Path:
    """systemctl and its like, which write down how they were called."""
    said = folder / "called.txt"
    for name in ("systemctl", "loginctl", "journalctl", "launchctl", "tail"):
        script = program_at(folder / "fake" / name)
        script.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {said}\ncase "$*" in *{fails}*) exit 3;; esac\n'
        )
    monkeypatch.setenv("PATH", f"{folder / 'fake'}:{os.environ['PATH']}")
    return said


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


def test_a_step_that_fails_ends_it_with_a_sentence(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on("linux", monkeypatch)
    said = fake_programs(tmp_path, monkeypatch, fails="daemon-reload")
    assert cli.main(["service", "install"]) == 1
    assert "daemon-reload` failed with exit code 3: is there a systemd" in capsys.readouterr().err
    assert "restart" not in said.read_text()


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


def test_an_environment_file_that_is_there_is_looked_at(tmp_path: Path) -> None:
    given = spec(tmp_path)
    assert specs.remarks(given) == []
    given.env_file.write_text("OTHER=1\n")
    given.env_file.chmod(0o644)
    open_to_all, lacking = specs.remarks(given)
    assert "0644" in open_to_all
    assert "lacks LITELLM_MASTER_KEY" in lacking


def test_the_variables_are_those_that_the_configuration_names() -> None:
    cloud = {"model": "m", "api_key_env": "CLOUD_KEY"}
    settings = from_mapping({"reliability": {"escalation": {"cloud_fallback": cloud}}})
    environ = {"MLX_STACK_SERVER__ADMIN_KEY": "a", "MLX_STACK_CONFIG": "x", "PATH": "y"}
    assert specs.needed_variables(settings, environ) == {
        "LITELLM_MASTER_KEY": None,
        "CLOUD_KEY": None,
        "MLX_STACK_SERVER__ADMIN_KEY": "a",
    }


def test_the_program_is_this_installations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(ServiceError, match="install the package first"):
        specs.find_program()
    program_at(tmp_path / "mlx-stack-proxy")
    assert specs.find_program() == tmp_path / "mlx-stack-proxy"


def test_without_a_file_the_service_has_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert specs.find_config(None, {}) is None
    assert specs.find_config(None, {"MLX_STACK_CONFIG": "my.yaml"}) == tmp_path / "my.yaml"
    args = argparse.Namespace(config="c.yaml", system=True)
    monkeypatch.setattr(specs, "find_program", lambda: tmp_path / "p")
    found = commands.describe(args, from_mapping({}))
    assert found.config == tmp_path / "c.yaml"
    assert found.env_file == Path("/etc/mlx-stack-proxy/service.env")
    assert "--config" not in spec(tmp_path, config=None).command


def test_the_steps_are_shown_as_they_are(tmp_path: Path) -> None:
    steps: list[Step] = [
        MakeFolder(tmp_path),
        WriteFile(tmp_path / "a", "secret", 0o600, keep=True, shown="hidden"),
        Run(("echo", "two words"), may_fail=True),
    ]
    text = show(steps)
    assert "secret" not in text
    assert "mode 0600), unless it is there" in text
    assert "echo 'two words'" in text
