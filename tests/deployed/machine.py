"""A Debian with its own systemd, in namespaces of its own: systemd-nspawn."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.deployed.base import GENEROUS, outcome

PROXY = "/opt/proxy/bin/mlx-stack-proxy"
UNIT = "mlx-stack-proxy.service"
USER = "ada"


@dataclass
class Machine:
    """``leader``: the number of its process 1, as this machine counts."""

    root: Path
    leader: int

    def outcome(self, *argv: str, user: str | None = None) -> tuple[int, str]:
        """Exit code and output of a program there: as root, or as a user who is logged in."""
        inside = ("nsenter", "--target", str(self.leader), "--all", "--wd=/")
        if user is not None:
            how = ("--quiet", "--wait", "--pipe", "--collect", "--property=PAMName=login")
            where = f"--property=WorkingDirectory=/home/{user}"
            inside += ("systemd-run", *how, f"--uid={user}", where, "--")
        environ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        return outcome(*inside, *argv, env=environ)

    def run(self, *argv: str, user: str | None = None) -> str:
        code, said = self.outcome(*argv, user=user)
        assert code == 0, f"{' '.join(argv)}: exit code {code}\n{said}"
        return said

    def service(self, *words: str, user: str | None = None) -> tuple[int, str]:
        """`mlx-stack-proxy service …`, of a user's or of the machine."""
        scope = () if user is not None else ("--system",)
        return self.outcome(PROXY, "service", *words, *scope, user=user)

    def shown(self, name: str, user: str | None = None) -> str:
        """A property of the unit, as systemd knows it."""
        scope = ("--user",) if user is not None else ()
        said = self.run(
            "systemctl", *scope, "show", f"--property={name}", "--value", UNIT, user=user
        )
        return said.strip()

    def kill(self, user: str | None = None) -> None:
        """SIGKILL to the unit's process."""
        scope = ("--user",) if user is not None else ()
        self.run("systemctl", *scope, "kill", "--signal=KILL", UNIT, user=user)

    def healthy(self) -> bool:
        ask = "import urllib.request as u; u.urlopen('http://127.0.0.1:4100/health', timeout=5)"
        return self.outcome("python3", "-c", ask)[0] == 0


@contextmanager
def booted(root: Path, log: Path) -> Iterator[Machine | None]:
    """None where this machine can't: the log says why."""
    (root / "etc/machine-id").write_text("")
    options = ["--quiet", f"--directory={root}", "--machine=mlx-stack-deploy", "--boot"]
    options += ["--private-network", "--console=pipe"]
    if not Path("/run/systemd/system").exists():  # nobody here to tell of it
        options += ["--register=no", "--keep-unit"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["systemd-nspawn", *options], stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        leader = _leader(process)
        yield None if leader is None else _ready(Machine(root, leader))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(GENEROUS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _leader(process: subprocess.Popen[bytes]) -> int | None:
    """Its process 1, once that is a systemd which has booted."""
    end = time.monotonic() + GENEROUS
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None and time.monotonic() < end:
        for child in children.read_text().split():
            asked = ("nsenter", f"--target={child}", "--all", "systemctl", "is-system-running")
            if outcome(*asked)[1].strip() in ("running", "degraded"):
                return int(child)
        time.sleep(0.1)
    return None


def _ready(machine: Machine) -> Machine:
    # systemd-nspawn lays a pipe over it, on which nothing else can be laid; a machine has none.
    machine.outcome("umount", "/proc/kmsg")
    machine.run("useradd", "--create-home", USER)
    return machine


def processes(number: int, root: Path) -> Path:
    """The folder below /proc of a process there, by its number there."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
        except OSError:
            continue
        numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
        if len(numbers) > 2 and int(numbers[2]) == number and _same_root(folder, root):
            return folder
    raise AssertionError(f"no process {number} in {root}")


def _same_root(folder: Path, root: Path) -> bool:
    try:
        return os.path.samefile(folder / "root/etc/machine-id", root / "etc/machine-id")
    except OSError:
        return False
