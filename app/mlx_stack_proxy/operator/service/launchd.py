"""A user agent of launchd (macOS)."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path
from typing import Any

from ..deploy_files import deploy_path
from . import env_file
from .installed import Installed
from .spec import LABEL, Spec, environment_step
from .steps import MakeFolder, Remove, Run, Silent, Step, UntilAnswers, UntilFails, WriteFile

INPUT_OUTPUT_ERROR = 5  # of `launchctl bootstrap`, while what was booted out still ends
GONE_SECONDS = 10  # for launchd itself, beyond the time that the proxy is given to end
START_SECONDS = 60


class Launchd:
    def __init__(self, home: Path, folder: Path) -> None:
        self.definition = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self.log = folder / "logs" / "proxy.log"
        self._domain = f"gui/{os.getuid()}"

    def notes(self) -> list[str]:
        return [f"the log is {self.log}; the proxy rotates it itself, at 10 MB, and keeps five"]

    def install(self, spec: Spec) -> list[Step]:
        """Anew where it is installed already: launchd reads a definition only once."""
        return [
            MakeFolder(spec.folder),
            MakeFolder(self.log.parent),
            environment_step(spec),
            WriteFile(self.definition, self.plist(spec)),
            *self._load_anew(spec.health_url, spec.stop_seconds),
        ]

    def _load_anew(self, health_url: str, stop_seconds: int) -> list[Step]:
        return [
            *self._stop(stop_seconds),
            Silent(health_url),
            Run(("launchctl", "enable", self._target)),
            Run(
                ("launchctl", "bootstrap", self._domain, str(self.definition)),
                again_on=INPUT_OUTPUT_ERROR,
            ),
            UntilAnswers(health_url, START_SECONDS, self.logs(20, follow=False).argv),
        ]

    def _stop(self, stop_seconds: int) -> list[Step]:
        """`bootout` returns before the service is gone, and until then it can't be loaded anew."""
        return [
            Run(("launchctl", "bootout", self._target), may_fail=True),
            UntilFails(("launchctl", "print", self._target), stop_seconds + GONE_SECONDS),
        ]

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

    def uninstall(self) -> list[Step]:
        return [*self._stop(self._stop_seconds()), Remove(self.definition)]

    def installed(self) -> Installed | None:
        """Raises :class:`SettingsError`: its environment file is one that the proxy refuses."""
        plist = self._plist()
        if plist is None:
            return None
        command = plist["ProgramArguments"]
        folder = Path(plist["WorkingDirectory"])
        file = Path(command[command.index("--env-file") + 1])
        return Installed(command, folder, env_file.read(file) if file.exists() else {})

    def _stop_seconds(self) -> int:
        """How long what is installed is given to end."""
        return int((self._plist() or {}).get("ExitTimeOut", 0))

    def _plist(self) -> dict[str, Any] | None:
        """The definition that is there; None where there is none."""
        try:
            found: dict[str, Any] = plistlib.loads(self.definition.read_bytes())
        except FileNotFoundError:
            return None
        return found

    def status(self) -> Run:
        return Run(("launchctl", "print", self._target))

    def restart(self, health_url: str) -> list[Step]:
        return self._load_anew(health_url, self._stop_seconds())

    def logs(self, lines: int, follow: bool) -> Run:
        # -F goes on with the new file when the old one is set aside.
        return Run(("tail", "-n", str(lines), *(("-F",) if follow else ()), str(self.log)))

    @property
    def _target(self) -> str:
        return f"{self._domain}/{LABEL}"
