"""The proxy as a launchd user agent (macOS).

launchd reads a definition only when it loads it, and ``bootout`` returns before the service is
gone. So each change stops the service, waits until launchd no longer has it, loads it again, and
waits until the proxy answers at its health URL, since launchd can't tell that the proxy serves.
"""

from __future__ import annotations

import os
import plistlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from .. import CommandError
from .machine import Machine, answers, filled, run

if TYPE_CHECKING:
    from .commands import Spec

LABEL = "com.mlx-stack.proxy"
TRIES = 5  # `bootstrap` fails with `Input/output error` while the old service still ends
GONE_SECONDS = 10  # for launchd itself, after the time that the proxy has to end (ExitTimeOut)
START_SECONDS = 60  # limit until the proxy answers


class Launchd:
    """Installs, asks and removes the agent.

    ``home``: the user's home folder; ``folder``: where the log is kept, in ``logs/``.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self.definition = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self.log = folder / "logs" / "proxy.log"
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{LABEL}"

    def notes(self) -> list[str]:
        """Return what the user should know about the installed service."""
        return [f"the log is {self.log}; the proxy rotates it itself, at 10 MB, and keeps five"]

    def install(self, machine: Machine, spec: Spec) -> None:
        """Install and start the service, replacing an old one. Raises :class:`CommandError`."""
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
        """Stop the service; wait until launchd has forgotten it. Raises :class:`CommandError`."""
        machine.succeeds("launchctl", "bootout", self._target)
        seconds = self._installed().get("ExitTimeOut", 0) + GONE_SECONDS
        query = ("launchctl", "print", self._target)
        if not machine.until(f"{LABEL} is gone", lambda: run(query, silent=True) != 0, seconds):
            raise CommandError(f"launchd still has {LABEL} after {seconds} s")

    def _start(self, machine: Machine, health_url: str) -> None:
        if not machine.until(
            f"nothing answers at {health_url}", lambda: not answers(health_url), 0
        ):
            raise CommandError(
                f"{health_url} answers, though the service is stopped: another process?"
            )
        machine.run("launchctl", "enable", self._target)
        machine.run("launchctl", "bootstrap", self._domain, str(self.definition), tries=TRIES)
        if not machine.until(f"{health_url} answers", lambda: answers(health_url), START_SECONDS):
            self.logs(20, follow=False)
            raise CommandError(f"it does not answer at {health_url} after {START_SECONDS:g} s")

    def plist(self, spec: Spec) -> str:
        options = ("--env-file", str(spec.env_file), "--log-file", str(self.log))
        # launchd restarts a service that fails, which is useless if its configuration is wrong.
        words = [*spec.command, *options, "--config-error-exit", "0"]
        values = {
            "ARGUMENTS": "\n    ".join(f"<string>{escape(word)}</string>" for word in words),
            "FOLDER": escape(str(spec.folder)),
            "LOG": escape(str(self.log)),
            "STOP_SECONDS": str(spec.stop_seconds),
        }
        return filled(f"launchd/{LABEL}.plist", values)

    def command(self) -> list[str] | None:
        """Return the command that the definition runs; None if there is no definition."""
        return self._installed().get("ProgramArguments")

    def _installed(self) -> dict[str, Any]:
        try:
            plist: dict[str, Any] = plistlib.loads(self.definition.read_bytes())
        except FileNotFoundError:
            return {}
        return plist

    def status(self) -> int:
        return run(("launchctl", "print", self._target))

    def logs(self, lines: int, follow: bool) -> int:
        # -F goes on with the new file after the log is rotated.
        return run(("tail", "-n", str(lines), *(("-F",) if follow else ()), str(self.log)))
