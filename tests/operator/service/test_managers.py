"""What each manager of services is given to read: launchd's property list, systemd's units."""

from __future__ import annotations

import argparse
import os
import plistlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.operator import cli
from mlx_stack_proxy.operator.service import commands, systemd
from mlx_stack_proxy.operator.service.launchd import Launchd
from mlx_stack_proxy.operator.service.steps import (
    MakeFolder,
    Remove,
    Run,
    ServiceError,
    Silent,
    Step,
    UntilAnswers,
    UntilFails,
    WriteFile,
    carry_out,
)
from mlx_stack_proxy.operator.service.systemd import SystemUnit, UserUnit, quoted
from mlx_stack_proxy.settings_source import from_mapping
from tests.operator.service.examples import ODD, program_at, spec

ROOT = Path(__file__).parents[3]


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
    "KeepAlive": dict,
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
    assert data["KeepAlive"] == {"SuccessfulExit": False}
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
        *("--config-error-exit", "0"),
    ]
    assert data["ExitTimeOut"] == 75
    assert data["StandardErrorPath"] == log
    assert MakeFolder(folder / "logs") in steps


def test_the_agents_arguments_are_ones_that_the_command_takes(tmp_path: Path) -> None:
    plist = plistlib.loads(Launchd(tmp_path, tmp_path).plist(spec(tmp_path)).encode())
    args = cli._parser().parse_args(plist["ProgramArguments"][1:])
    assert args.env_file == tmp_path / "service.env"
    assert args.log_file == tmp_path / "logs" / "proxy.log"


def test_the_agent_is_loaded_anew_once_the_old_one_is_gone(tmp_path: Path) -> None:
    agent = Launchd(tmp_path, tmp_path)
    given = spec(tmp_path, stop_seconds=75)
    target = f"gui/{os.getuid()}/com.mlx-stack.proxy"
    bootout = Run(("launchctl", "bootout", target), may_fail=True)
    gone = UntilFails(("launchctl", "print", target), 85)
    loaded_anew = [
        bootout,
        gone,
        Silent(given.health_url),
        Run(("launchctl", "enable", target)),
        Run(("launchctl", "bootstrap", f"gui/{os.getuid()}", str(agent.definition)), again_on=5),
        UntilAnswers(given.health_url, 60, ("tail", "-n", "20", str(agent.log))),
    ]
    steps = agent.install(given)
    assert steps[-len(loaded_anew) :] == loaded_anew
    carry_out([written(steps, "com.mlx-stack.proxy.plist")])
    assert agent.restart(given.health_url) == loaded_anew
    assert agent.uninstall() == [bootout, gone, Remove(agent.definition)]
    assert agent.logs(5, True).argv == ("tail", "-n", "5", "-F", str(agent.log))


def test_a_bad_configuration_is_no_failure_for_launchd(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `SuccessfulExit` false it starts anew what fails: not what ends with 0."""
    config = tmp_path / "config.yaml"
    config.write_text("servre: {}")
    plist = plistlib.loads(Launchd(tmp_path, tmp_path).plist(spec(tmp_path)).encode())
    asked = plist["ProgramArguments"][-2:]
    assert cli.main(["serve", "--config", str(config), *asked]) == 0
    assert "unknown key `servre`" in capsys.readouterr().err
    assert cli.main(["serve", "--config", str(config)]) == 2, "as the units of systemd know it"


def test_what_is_installed_is_read_again(tmp_path: Path) -> None:
    """Whatever its path: so a restart can look whether it would start."""
    folder = tmp_path / ODD
    folder.mkdir()
    config = folder / "config.yaml"
    config.write_text("server: {port: 4242}")
    env_file = folder / "service.env"
    env_file.write_text("MLX_STACK_SERVER__HOST=0.0.0.0\n")
    env_file.chmod(0o600)
    for manager in (Launchd(tmp_path, folder), UserUnit(tmp_path)):
        assert manager.installed() is None
        for path in (config, None):  # without one it is the working folder's
            for step in manager.install(spec(folder, config=path)):
                if isinstance(step, WriteFile):
                    carry_out([step])
            found = manager.installed()
            assert found is not None
            settings = found.settings()
            assert (settings.server.port, settings.server.host) == (4242, "0.0.0.0")


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
    assert "PrivateUsers=yes" in step.content.splitlines()
    for one in steps:
        if isinstance(one, WriteFile):
            carry_out([one])
    verified(manager.definition.parent, "--user", str(manager.definition))


def test_the_sandbox_lets_captured_failures_be_written_wherever_they_go(tmp_path: Path) -> None:
    manager = UserUnit(tmp_path)
    manager.sandboxed = True
    state = {"path": "~/elsewhere/reliability.db"}
    settings = from_mapping({"state": state, "observability": {"capture_path": "/srv/failures"}})
    given = commands.describe(argparse.Namespace(config=None, system=False), settings)
    step = written(manager.install(given), "sandbox.conf")
    home = Path.home()
    folders = f"{home}/.mlx-stack {home}/elsewhere /srv/failures"
    assert f"ReadWritePaths={folders}\n" in step.content
    variable = "MLX_STACK_OBSERVABILITY__CAPTURE_PATH"
    line = f"Environment={variable}=/var/lib/mlx-stack-proxy/failures"
    assert line in systemd.unit("system", given).splitlines()


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
    assert said["Type"] == "notify"
    assert said["RestartPreventExitStatus"] == "2"
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
