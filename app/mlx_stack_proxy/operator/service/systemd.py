"""A unit of systemd (Linux): of one user, or of the machine."""

from __future__ import annotations

import getpass
import re
import shlex
import sys
from pathlib import Path

from ..deploy_files import deploy_path
from . import env_file
from .installed import Installed
from .spec import NAME, Spec, environment_step
from .steps import MakeFolder, Remove, Run, ServiceError, Step, WriteFile

UNIT = f"{NAME}.service"
SYSTEM_UNITS = Path("/etc/systemd/system")
LINGERING = Path("/var/lib/systemd/linger")  # a file for each user who lingers
# What the system unit can't see, for ProtectHome hides it.
_HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"))
# (file, what it says where a user may not make namespaces)
_NO_NAMESPACES = (
    (Path("/proc/sys/user/max_user_namespaces"), "0"),
    (Path("/proc/sys/kernel/unprivileged_userns_clone"), "0"),
    (Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"), "1"),
)
NO_SYSTEMD = (
    "is there a systemd here? In a container there is none: let that run `mlx-stack-proxy serve`"
)
NO_USERS_SYSTEMD = f"{NO_SYSTEMD}. After `su` yours isn't reached: log in as the user itself"


class UserUnit:
    def __init__(self, config_home: Path) -> None:
        """``config_home``: ``$XDG_CONFIG_HOME``."""
        folder = config_home / "systemd" / "user"
        self._sandbox = folder / f"{UNIT}.d" / "sandbox.conf"
        # Beside the drop-in; systemd reads only names that end with .conf.
        self._lingers = self._sandbox.with_name("lingering")
        self.definition = folder / UNIT
        self.sandboxed = may_make_namespaces()

    def notes(self) -> list[str]:
        if self.sandboxed:
            return []
        return [
            "this kernel lets no user make namespaces: without ProtectSystem and the rest of "
            "deploy/systemd/user/sandbox.conf (docs/install.md)"
        ]

    def install(self, spec: Spec) -> list[Step]:
        elsewhere = [path for path in spec.kept_in if not path.is_relative_to(spec.folder)]
        writable = list(dict.fromkeys((spec.folder, *elsewhere)))
        values = {"WRITABLE": " ".join(quoted(str(path)) for path in writable)}
        sandbox = filled("systemd/user/sandbox.conf", values)
        return [
            *(MakeFolder(path) for path in writable),
            environment_step(spec),
            WriteFile(self.definition, unit("user", spec)),
            WriteFile(self._sandbox, sandbox) if self.sandboxed else Remove(self._sandbox),
            Run((*self._systemctl, "daemon-reload"), hint=NO_USERS_SYSTEMD),
            Run((*self._systemctl, "enable", UNIT)),
            *self._linger(),
            *self.restart(spec.health_url),
        ]

    def _linger(self) -> list[Step]:
        """Or it would end with the last login of its user. Who lingers already goes on to."""
        user = getpass.getuser()
        if (LINGERING / user).exists():
            return []
        said = f"`service install` let {user} linger; `service uninstall` ends that.\n"
        kept = WriteFile(self._lingers, said)
        return [Run(("loginctl", "enable-linger", user), may_fail=True, then=(kept,))]

    def uninstall(self) -> list[Step]:
        unlinger = Run(("loginctl", "disable-linger", getpass.getuser()), may_fail=True)
        return [
            Run((*self._systemctl, "disable", "--now", UNIT), may_fail=True),
            *([unlinger] if self._lingers.exists() else []),
            Remove(self._lingers),
            Remove(self._sandbox),
            Remove(self._sandbox.parent),
            Remove(self.definition),
            Run((*self._systemctl, "daemon-reload"), may_fail=True),
        ]

    def installed(self) -> Installed | None:
        return _installed(self.definition)

    def status(self) -> Run:
        return Run((*self._systemctl, "status", "--no-pager", UNIT))

    def restart(self, _: str) -> list[Step]:
        return [_restart(self._systemctl, self.logs(20, follow=False))]

    def logs(self, lines: int, follow: bool) -> Run:
        return Run(("journalctl", "--user-unit", UNIT, *_journal(lines, follow)))

    _systemctl = ("systemctl", "--user")


class SystemUnit:
    def __init__(self) -> None:
        self.definition = SYSTEM_UNITS / UNIT

    def notes(self) -> list[str]:
        said = "state and captured failures are kept in /var/lib/mlx-stack-proxy"
        return [f"{said}, whatever the file says"]

    def install(self, spec: Spec) -> list[Step]:
        """Raises :class:`ServiceError` where the service could not read what it needs."""
        needed = (spec.program, Path(sys.executable).resolve(), spec.config)
        for path in needed:
            hidden = [place for place in _HIDDEN if path is not None and path.is_relative_to(place)]
            if hidden:
                raise ServiceError(
                    f"{path} is below {hidden[0]}, which a system service does not see: "
                    f"install into /opt, configure in /etc (docs/install.md), or use --user"
                )
        return [
            MakeFolder(spec.env_file.parent, 0o755),
            environment_step(spec),
            WriteFile(self.definition, unit("system", spec)),
            Run(("systemctl", "daemon-reload"), hint=NO_SYSTEMD),
            Run(("systemctl", "enable", UNIT)),
            *self.restart(spec.health_url),
        ]

    def uninstall(self) -> list[Step]:
        return [
            Run(("systemctl", "disable", "--now", UNIT), may_fail=True),
            Remove(self.definition),
            Run(("systemctl", "daemon-reload"), may_fail=True),
        ]

    def status(self) -> Run:
        return Run(("systemctl", "status", "--no-pager", UNIT))

    def installed(self) -> Installed | None:
        return _installed(self.definition)

    def restart(self, _: str) -> list[Step]:
        return [_restart(("systemctl",), self.logs(20, follow=False))]

    def logs(self, lines: int, follow: bool) -> Run:
        return Run(("journalctl", "--unit", UNIT, *_journal(lines, follow)))


def _restart(systemctl: tuple[str, ...], logs: Run) -> Run:
    """It waits until the proxy says that it serves (`Type=notify`), and fails if it never does."""
    return Run(
        (*systemctl, "restart", UNIT),
        hint="the service does not start; above is what it wrote last",
        explained_by=logs.argv,
    )


def _installed(definition: Path) -> Installed | None:
    try:
        lines = definition.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    said = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    environ = env_file.read_leniently(Path(_plain(said["EnvironmentFile"].removeprefix("-"))))
    folder = Path(_plain(said["WorkingDirectory"]))
    return Installed([_plain(word) for word in shlex.split(said["ExecStart"])], folder, environ)


def _plain(word: str) -> str:
    """A word of a unit file without what :func:`quoted` does to percent and dollar signs."""
    return word.replace("%%", "%").replace("$$", "$")


def unit(kind: str, spec: Spec) -> str:
    """The unit file of ``deploy/systemd/user/`` or ``system/`` for this installation."""
    program, *arguments = spec.command
    if re.search(r"[\"'\\]", program):
        raise ServiceError(f"{program}: systemd runs no program whose path has quotes in it")
    values = {
        "COMMAND": " ".join([quoted(program), *(quoted(a, argument=True) for a in arguments)]),
        # These two take a path to the end of the line, so a space needs no quotes.
        "ENV_FILE": _percent(str(spec.env_file)),
        "FOLDER": _percent(str(spec.folder)),
        "STOP_SECONDS": str(spec.stop_seconds),
    }
    return filled(f"systemd/{kind}/{UNIT}", values)


def filled(name: str, values: dict[str, str]) -> str:
    """A template of ``deploy/`` with its ``@NAME@`` replaced."""
    text = deploy_path(name).read_text(encoding="utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda found: values[found[1]], text)


def quoted(word: str, argument: bool = False) -> str:
    """One word of a unit file. ``argument``: of a command, where ``$`` means a variable."""
    if any(ord(letter) < 32 for letter in word):
        raise ServiceError(f"{word!r}: a path with control characters fits no unit file")
    word = _percent(word).replace("\\", "\\\\").replace('"', '\\"')
    if argument:
        word = word.replace("$", "$$")
    return word if re.fullmatch(r"[\w/.:=%@+-]+", word) else f'"{word}"'


def may_make_namespaces() -> bool:
    """Whether this kernel lets a user's own units have ProtectSystem and the like."""
    return not any(_says(file) == refusal for file, refusal in _NO_NAMESPACES)


def _says(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def _journal(lines: int, follow: bool) -> tuple[str, ...]:
    return ("--no-pager", "--lines", str(lines), *(("--follow",) if follow else ()))
