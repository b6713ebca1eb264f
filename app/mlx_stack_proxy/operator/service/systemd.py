"""The proxy as a systemd unit (Linux), of one user or of the machine.

The unit is a template of ``deploy/systemd/`` with its ``@NAME@`` filled in. A user's unit gets its
sandbox in a drop-in of its own, because some kernels let no user make the namespaces it needs.
"""

from __future__ import annotations

import contextlib
import getpass
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .. import CommandError
from .machine import Machine, filled, run

if TYPE_CHECKING:
    from .commands import Spec

UNIT = "mlx-stack-proxy.service"
SYSTEM_UNITS = Path("/etc/systemd/system")
LINGERING = Path("/var/lib/systemd/linger")  # systemd keeps a file here for each lingering user
# Folders that ProtectHome hides from the system unit.
_HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"))
# Files of the kernel, each with its content where users may not make namespaces.
_NO_NAMESPACES = (
    (Path("/proc/sys/user/max_user_namespaces"), "0"),
    (Path("/proc/sys/kernel/unprivileged_userns_clone"), "0"),
    (Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"), "1"),
)
_NO_SYSTEMD = (
    "is there a systemd here? In a container there is none: let that run `mlx-stack-proxy serve`"
)
_NO_USERS_SYSTEMD = f"{_NO_SYSTEMD}. After `su` yours isn't reached: log in as the user itself"


class Systemd:
    """Installs, asks and removes the unit.

    ``units``: the folder of the user's own units; None for a unit of the machine.
    """

    def __init__(self, units: Path | None) -> None:
        self._user = units is not None
        self.definition = (units or SYSTEM_UNITS) / UNIT
        self._systemctl = ("systemctl", "--user") if self._user else ("systemctl",)
        self._sandbox = self.definition.with_name(f"{UNIT}.d") / "sandbox.conf"
        # This file says that we enabled lingering. It may lie here: systemd reads only *.conf.
        self._linger_mark = self._sandbox.with_name("lingering")
        # Whether this kernel lets users' units have ProtectSystem and the rest of the sandbox.
        self.sandboxed = not any(_says(file) == refusal for file, refusal in _NO_NAMESPACES)

    def notes(self) -> list[str]:
        """Return what the user should know about the installed service."""
        if not self._user:
            sentence = "state and captured failures are kept in /var/lib/mlx-stack-proxy"
            return [f"{sentence}, whatever the file says"]
        if self.sandboxed:
            return []
        return [
            "this kernel lets users make no namespaces: without ProtectSystem and the rest of "
            "deploy/systemd/user/sandbox.conf (docs/install.md)"
        ]

    def install(self, machine: Machine, spec: Spec) -> None:
        """Write, enable and start the unit. Raises :class:`CommandError`."""
        if self._user:
            outside = [path for path in spec.kept_in if not path.is_relative_to(spec.folder)]
            writable = list(dict.fromkeys((spec.folder, *outside)))
            for path in writable:
                machine.folder(path)
            values = {"WRITABLE": " ".join(quoted(str(path)) for path in writable)}
            if self.sandboxed:
                machine.write(self._sandbox, filled("systemd/user/sandbox.conf", values))
            else:
                machine.remove(self._sandbox)
        machine.write(self.definition, unit("user" if self._user else "system", spec))
        hint = _NO_USERS_SYSTEMD if self._user else _NO_SYSTEMD
        machine.run(*self._systemctl, "daemon-reload", hint=hint)
        machine.run(*self._systemctl, "enable", UNIT)
        user = getpass.getuser()
        # Without lingering the service would end with the user's last session.
        lingers = not self._user or (LINGERING / user).exists()
        if not lingers and machine.succeeds("loginctl", "enable-linger", user):
            text = f"`service install` let {user} linger; `service uninstall` ends that.\n"
            machine.write(self._linger_mark, text)
        self.restart(machine, spec.health_url)

    def restart(self, machine: Machine, _: str) -> None:
        """Restart the unit; systemd waits until the proxy says that it serves (``Type=notify``).

        Raises :class:`CommandError` if the proxy doesn't start.
        """
        if not machine.succeeds(*self._systemctl, "restart", UNIT):
            self.logs(20, follow=False)
            raise CommandError("the service does not start; its last output is above")

    def uninstall(self, machine: Machine) -> None:
        machine.succeeds(*self._systemctl, "disable", "--now", UNIT)
        if self._linger_mark.exists():
            machine.succeeds("loginctl", "disable-linger", getpass.getuser())
        if self._user:
            for path in (self._linger_mark, self._sandbox, self._sandbox.parent):
                machine.remove(path)
        machine.remove(self.definition)
        machine.succeeds(*self._systemctl, "daemon-reload")

    def command(self) -> list[str] | None:
        """Return the command that the unit runs; None if there is no unit."""
        try:
            text = self.definition.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        (words,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(words)]

    def status(self) -> int:
        return run((*self._systemctl, "status", "--no-pager", UNIT))

    def logs(self, lines: int, follow: bool) -> int:
        unit_options = ("--user-unit" if self._user else "--unit", UNIT)
        line_options = ("--no-pager", "--lines", str(lines), *(("--follow",) if follow else ()))
        return run(("journalctl", *unit_options, *line_options))


def refuse_hidden(spec: Spec) -> None:
    """Raise :class:`CommandError` if ``ProtectHome`` hides a file that the system unit needs."""
    for path in (spec.program, Path(sys.executable).resolve(), spec.config):
        for place in _HIDDEN:
            if path is not None and path.is_relative_to(place):
                raise CommandError(
                    f"{path} is below {place}, which a system service does not see: "
                    f"install into /opt, configure in /etc (docs/install.md), or use --user"
                )


def unit(kind: str, spec: Spec) -> str:
    """Return the unit's text from ``deploy/systemd/``. ``kind``: ``user`` or ``system``.

    Raises :class:`CommandError` for a path that systemd can't hold.
    """
    program, *arguments = spec.command
    if re.search(r"[\"'\\]", program):
        raise CommandError(f"{program}: systemd runs no program whose path has quotes in it")
    values = {
        "COMMAND": " ".join([quoted(program), *(quoted(a, argument=True) for a in arguments)]),
        # In these two settings the path ends with the line: spaces need no quotes.
        "ENV_FILE": str(spec.env_file).replace("%", "%%"),
        "FOLDER": str(spec.folder).replace("%", "%%"),
        "STOP_SECONDS": str(spec.stop_seconds),
    }
    return filled(f"systemd/{kind}/{UNIT}", values)


def quoted(word: str, argument: bool = False) -> str:
    """Quote a word for a unit file. Raises :class:`CommandError` for control characters.

    ``argument``: whether it is a command's argument, in which ``$`` begins a variable.
    """
    if any(ord(letter) < 32 for letter in word):
        raise CommandError(f"{word!r}: a path with control characters fits no unit file")
    word = word.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    if argument:
        word = word.replace("$", "$$")
    return word if re.fullmatch(r"[\w/.:=%@+-]+", word) else f'"{word}"'


def _says(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text().strip()
    return ""
