"""A user agent of launchd (macOS)."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..deploy_files import deploy_path
from .machine import Machine, ServiceError, answers, run

if TYPE_CHECKING:
    from .commands import Spec

LABEL = "com.mlx-stack.proxy"
TRIES = 5  # `bootstrap` fails with `Input/output error` while what was booted out still ends
GONE_SECONDS = 10  # for launchd itself, beyond the time that the proxy is given to end
START_SECONDS = 60


class Launchd:
    def __init__(self, home: Path, folder: Path) -> None:
        self.definition = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self.log = folder / "logs" / "proxy.log"
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{LABEL}"

    def notes(self) -> list[str]:
        return [f"the log is {self.log}; the proxy rotates it itself, at 10 MB, and keeps five"]

    def install(self, machine: Machine, spec: Spec) -> None:
        """Anew where it is installed already: launchd reads a definition only once."""
        machine.folder(self.log.parent)
        self._stop(machine)
        machine.write(self.definition, self.plist(spec))
        self._start(machine, spec.health_url)

    def restart(self, machine: Machine, health_url: str) -> None:
        self._stop(machine)
        self._start(machine, health_url)

    def uninstall(self, machine: Machine) -> None:
        self._stop(machine)
        machine.remove(self.definition)

    def _stop(self, machine: Machine) -> None:
        """`bootout` returns before the service is gone, and until then it can't be loaded anew."""
        machine.succeeds("launchctl", "bootout", self._target)
        seconds = (self._plist() or {}).get("ExitTimeOut", 0) + GONE_SECONDS
        look = ("launchctl", "print", self._target)
        if not machine.until(f"{LABEL} is gone", lambda: run(look, silent=True) != 0, seconds):
            raise ServiceError(f"launchd still has {LABEL} after {seconds} s")

    def _start(self, machine: Machine, health_url: str) -> None:
        if not machine.until(f"nobody answers at {health_url}", lambda: not answers(health_url), 0):
            raise ServiceError(f"{health_url} answers, though the service is stopped: who is it?")
        machine.run("launchctl", "enable", self._target)
        machine.run("launchctl", "bootstrap", self._domain, str(self.definition), tries=TRIES)
        if not machine.until(f"{health_url} answers", lambda: answers(health_url), START_SECONDS):
            self.logs(20, follow=False)
            raise ServiceError(f"it does not answer at {health_url} after {START_SECONDS:g} s")

    def plist(self, spec: Spec) -> str:
        """The definition, from ``deploy/launchd/``; filled in as data, so any path will do."""
        data: dict[str, Any] = plistlib.loads(
            deploy_path(f"launchd/{LABEL}.plist").read_bytes(), fmt=plistlib.FMT_XML
        )
        own = [
            *("--env-file", str(spec.env_file), "--log-file", str(self.log)),
            # launchd starts anew what fails, and a configuration doesn't get better by itself.
            *("--config-error-exit", "0"),
        ]
        data["ProgramArguments"] = [*spec.command, *own]
        data["WorkingDirectory"] = str(spec.folder)
        data["StandardOutPath"] = data["StandardErrorPath"] = str(self.log)
        data["ExitTimeOut"] = spec.stop_seconds
        return plistlib.dumps(data, sort_keys=False).decode()

    def command(self) -> list[str] | None:
        """What the definition runs; None where it isn't there."""
        plist = self._plist()
        return None if plist is None else plist["ProgramArguments"]

    def _plist(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = plistlib.loads(self.definition.read_bytes())
        except FileNotFoundError:
            return None
        return found

    def status(self) -> int:
        return run(("launchctl", "print", self._target))

    def logs(self, lines: int, follow: bool) -> int:
        # -F goes on with the new file when the old one is set aside.
        return run(("tail", "-n", str(lines), *(("-F",) if follow else ()), str(self.log)))
