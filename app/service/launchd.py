"""A user agent of launchd (macOS)."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path
from typing import Any

from ..deploy_files import deploy_path
from .spec import LABEL, Spec, environment_step
from .steps import MakeFolder, Remove, Run, Step, WriteFile


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
            Run(("launchctl", "bootout", self._target), may_fail=True),
            Run(("launchctl", "enable", self._target)),
            Run(("launchctl", "bootstrap", self._domain, str(self.definition))),
        ]

    def plist(self, spec: Spec) -> str:
        """The definition, from ``deploy/launchd/``; filled in as data, so any path will do."""
        data: dict[str, Any] = plistlib.loads(
            deploy_path(f"launchd/{LABEL}.plist").read_bytes(), fmt=plistlib.FMT_XML
        )
        own = ("--env-file", str(spec.env_file), "--log-file", str(self.log))
        data["ProgramArguments"] = [*spec.command, *own]
        data["WorkingDirectory"] = str(spec.folder)
        data["StandardOutPath"] = data["StandardErrorPath"] = str(self.log)
        data["ExitTimeOut"] = spec.stop_seconds
        return plistlib.dumps(data, sort_keys=False).decode()

    def uninstall(self) -> list[Step]:
        return [
            Run(("launchctl", "bootout", self._target), may_fail=True),
            Remove(self.definition),
        ]

    def status(self) -> Run:
        return Run(("launchctl", "print", self._target))

    def restart(self) -> Run:
        return Run(("launchctl", "kickstart", "-k", self._target))

    def logs(self, lines: int, follow: bool) -> Run:
        # -F goes on with the new file when the old one is set aside.
        return Run(("tail", "-n", str(lines), *(("-F",) if follow else ()), str(self.log)))

    @property
    def _target(self) -> str:
        return f"{self._domain}/{LABEL}"
