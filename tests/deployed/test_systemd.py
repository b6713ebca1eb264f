"""The units, on a real systemd 252: installed, killed, restarted, removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deployed.base import eventually
from tests.deployed.machine import PROXY, USER, Machine, processes

pytestmark = pytest.mark.timeout(900)
KINDS = pytest.mark.parametrize("user", [None, USER], ids=["system", "user"])


def config_of(machine: Machine, user: str | None) -> Path:
    """The configuration that the service reads in its working folder."""
    folder = "var/lib/mlx-stack-proxy" if user is None else f"home/{user}/.mlx-stack"
    return machine.root / folder / "config.yaml"


def unit_of(machine: Machine, user: str | None) -> Path:
    folder = "etc/systemd/system" if user is None else f"home/{user}/.config/systemd/user"
    return machine.root / folder / "mlx-stack-proxy.service"


@pytest.fixture(autouse=True)
def nothing_left(booted: Machine) -> None:
    assert not booted.healthy()


@KINDS
def test_it_is_installed_killed_restarted_and_removed(booted: Machine, user: str | None) -> None:
    code, said = booted.service("install", user=user)
    assert code == 0, said
    assert "installed and serving" in said
    assert booted.healthy(), "at once: `install` waits for it"
    first = booted.shown("MainPID", user)

    booted.kill(user)
    eventually(
        lambda: booted.shown("MainPID", user) not in ("0", first) and booted.healthy(),
        "systemd starts it anew",
    )
    second = booted.shown("MainPID", user)

    config = config_of(booted, user)
    config.write_text("servre: {}")
    code, said = booted.service("restart", user=user)
    assert code == 2, said
    assert "unknown key `servre`" in said
    assert (booted.shown("MainPID", user), booted.healthy()) == (second, True)

    config.write_text("server: {shutdown_grace_seconds: 5}")
    code, said = booted.service("restart", user=user)
    assert code == 0, said
    assert booted.shown("MainPID", user) not in ("0", second)
    assert booted.healthy()

    code, said = booted.service("uninstall", user=user)
    assert code == 0, said
    assert not booted.healthy()
    unit = unit_of(booted, user)
    assert not unit.exists() and not unit.with_name(f"{unit.name}.d").exists()
    assert booted.service("status", user=user)[0] != 0
    assert config.exists(), "configuration and state stay"
    config.unlink()


@KINDS
def test_what_does_not_start_is_said_with_its_own_words(booted: Machine, user: str | None) -> None:
    """Here another program has its port."""
    unit = "--unit=in-the-way"
    listen = "import socket, time; s = socket.create_server(('127.0.0.1', 4100)); time.sleep(999)"
    booted.run("systemd-run", "--quiet", unit, "python3", "-c", listen)
    taken = "import socket; socket.create_connection(('127.0.0.1', 4100), 5)"
    eventually(lambda: booted.outcome("python3", "-c", taken)[0] == 0, "the port is taken")
    try:
        code, said = booted.service("install", user=user)
        assert code == 1, said
        assert "it serves" not in said
        assert "port 4100 (for the proxy) is in use by" in said, "of the journal"
    finally:
        booted.run("systemctl", "stop", "in-the-way")
        booted.service("uninstall", user=user)


@KINDS
def test_a_bad_configuration_is_not_started_again_and_again(
    booted: Machine, user: str | None
) -> None:
    code, said = booted.service("install", user=user)
    assert code == 0, said
    config = config_of(booted, user)
    config.write_text("servre: {}")
    try:
        booted.kill(user)
        eventually(lambda: booted.shown("ActiveState", user) == "failed", "it is given up")
        assert booted.shown("ExecMainStatus", user) == "2"
    finally:
        config.unlink()
        booted.service("uninstall", user=user)


@KINDS
def test_the_sandbox_holds(booted: Machine, user: str | None) -> None:
    """systemd 252 passes over ProtectSystem in a user's unit without a user namespace."""
    code, said = booted.service("install", user=user)
    assert code == 0, said
    try:
        process = processes(int(booted.shown("MainPID", user)), booted.root)
        mounted = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
        (options,) = [words[5] for words in mounted if words[4] == "/"][-1:]
        assert "ro" in options.split(",")
        state = config_of(booted, user).parent
        writable = "/" + str(state.relative_to(booted.root))
        assert [words for words in mounted if words[4].endswith(writable.rpartition("/")[2])]
        status = (process / "status").read_text()
        assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status
        assert "Uid:\t0" not in status
    finally:
        booted.service("uninstall", user=user)


def test_lingering_is_ended_where_install_began_it(booted: Machine) -> None:
    def lingers() -> bool:
        return (booted.root / "var/lib/systemd/linger" / USER).exists()

    assert not lingers()
    assert booted.service("install", user=USER)[0] == 0
    assert lingers(), "it goes on when its user has left"
    assert booted.service("uninstall", user=USER)[0] == 0
    assert not lingers()

    booted.run("loginctl", "enable-linger", USER)
    assert booted.service("install", user=USER)[0] == 0
    assert booted.service("uninstall", user=USER)[0] == 0
    assert lingers(), "somebody else's wish"
    booted.run("loginctl", "disable-linger", USER)


def test_a_user_who_is_not_logged_in_is_told(booted: Machine) -> None:
    """As behind `su`: no systemd of the user's own is reached."""
    code, said = booted.outcome("runuser", "-u", USER, "--", PROXY, "service", "install")
    assert code == 1
    assert "log in as the user" in said
