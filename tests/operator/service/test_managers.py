"""What each manager of services is given to read: launchd's property list, systemd's units."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.operator import CommandError, cli
from mlx_stack_proxy.operator.service import managers
from mlx_stack_proxy.operator.service.managers import (
    UNIT,
    Launchd,
    Systemd,
    quoted,
)
from tests.operator.service.examples import COMMAND, CONFIG, ODD, PROGRAM, program_at, settings

ROOT = Path(__file__).parents[3]


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


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / ODD))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / ODD


def test_the_agent(home: Path) -> None:
    folder = home / ".mlx-stack"
    text = Launchd().text(COMMAND, settings(60))
    assert "@" not in text
    data = plistlib.loads(text.encode(), fmt=plistlib.FMT_XML)
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


def test_the_agents_arguments_are_ones_that_the_command_takes(home: Path) -> None:
    plist = plistlib.loads(Launchd().text(COMMAND, settings()).encode())
    args = cli.arguments(plist["ProgramArguments"][1:])
    assert args.env_file == home / ".mlx-stack" / "service.env"
    assert args.log_file == home / ".mlx-stack" / "logs" / "proxy.log"


def test_a_bad_configuration_is_no_failure_for_launchd(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `SuccessfulExit` false it starts anew what fails: not what ends with 0."""
    config = tmp_path / "config.yaml"
    config.write_text("servre: {}")
    plist = plistlib.loads(Launchd().text(COMMAND, settings()).encode())
    asked = plist["ProgramArguments"][-2:]
    assert cli.main(["serve", "--config", str(config), *asked]) == 0
    assert "unknown key `servre`" in capsys.readouterr().err
    assert cli.main(["serve", "--config", str(config)]) == 2, "as the units of systemd know it"


# --- systemd ---------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def seen_by_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter may lie in a home, which a service of the machine does not see."""
    monkeypatch.setattr("sys.executable", "/usr/bin/env")


def unit(kind: str, program: Path = PROGRAM, config: Path = CONFIG) -> str:
    command = (str(program), "serve", "--config", str(config))
    return Systemd(kind == "system").text(command, settings(60))


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
def test_a_unit_that_systemd_takes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = program_at(tmp_path / "R&D <1> 100% $HOME" / "mlx-stack-proxy")
    monkeypatch.setenv("HOME", str(tmp_path / "with blanks 5%"))
    (tmp_path / "with blanks 5%" / ".mlx-stack").mkdir(parents=True)
    text = unit(kind, program, tmp_path / ODD)
    file = tmp_path / "units" / UNIT
    file.parent.mkdir()
    file.write_text(text)
    verified(file.parent, *(("--user",) if kind == "user" else ()), str(file))


@pytest.fixture
def no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemctl and loginctl that do nothing, before all others."""
    for name in ("systemctl", "loginctl"):
        program_at(tmp_path / "none" / name)
    monkeypatch.setenv("PATH", f"{tmp_path / 'none'}:{os.environ['PATH']}")


def sandbox_of(manager: Systemd) -> Path:
    return manager.definition.with_name(f"{UNIT}.d") / "sandbox.conf"


@pytest.mark.usefixtures("no_programs")
def test_the_sandbox_of_a_user_is_one_that_systemd_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home 5%"))
    manager = Systemd(False)
    manager.sandboxed = True
    program = program_at(tmp_path / "mlx-stack-proxy")
    elsewhere = tmp_path / "failures"  # wherever the state and captured failures go
    manager.install((str(program), "serve"), settings(failures=elsewhere))
    lines = sandbox_of(manager).read_text().splitlines()
    assert f'ReadWritePaths="{tmp_path}/home 5%%/.mlx-stack" {elsewhere}' in lines
    assert "PrivateUsers=yes" in lines
    assert manager.folder.is_dir() and elsewhere.is_dir()
    verified(manager.definition.parent, "--user", str(manager.definition))


def test_the_system_unit_keeps_captured_failures_where_it_may_write() -> None:
    variable = "MLX_STACK_OBSERVABILITY__CAPTURE_PATH"
    line = f"Environment={variable}=/var/lib/mlx-stack-proxy/failures"
    assert line in unit("system").splitlines()


def lines_of(text: str) -> dict[str, str]:
    plain = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return {line.partition("=")[0]: line.partition("=")[2] for line in plain}


@pytest.mark.parametrize("kind", ["user", "system"])
def test_a_unit_says_what_it_should(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    said = lines_of(unit(kind))
    assert said["ExecStart"] == (
        "/opt/mlx-stack-proxy/bin/mlx-stack-proxy serve --config /etc/mlx-stack-proxy/config.yaml"
    )
    assert said["ExecReload"] == "/bin/kill -HUP $MAINPID"
    folder = "/home/ada/.mlx-stack" if kind == "user" else "/etc/mlx-stack-proxy"
    assert said["EnvironmentFile"] == f"-{folder}/service.env"
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
        with pytest.raises(CommandError, match="quotes"):
            unit("user", tmp_path / name)


def test_a_system_unit_is_refused_what_it_could_not_see() -> None:
    for place in ("/home/ada/bin/mlx-stack-proxy", "/root/.local/bin/mlx-stack-proxy"):
        with pytest.raises(CommandError, match=r"can't see.*--user"):
            unit("system", Path(place))
    with pytest.raises(CommandError, match=r"/home/ada/config.yaml is below /home"):
        unit("system", config=Path("/home/ada/config.yaml"))


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
    with pytest.raises(CommandError, match="control"):
        quoted("/a\nExecStartPre=/bin/x")


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize("said", ["0\n", "1\n"])
def test_a_kernel_without_namespaces_gets_a_unit_without_them(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernel").write_text(said)
    files = {tmp_path / "missing": "1", tmp_path / "kernel": "0"}
    monkeypatch.setattr(managers, "NO_NAMESPACES", files)
    manager = Systemd(False)
    manager.install(COMMAND, settings())
    refused = said == "0\n"
    assert manager.definition.exists() and sandbox_of(manager).exists() is not refused
    assert any("namespaces" in note for note in manager.notes) is refused
