"""launchd and systemd: how each sets up, asks and removes the service.

Both fill in a template of ``deploy/`` and take their steps by methods of :class:`Manager`, which
only prints them in a dry run.
"""

from __future__ import annotations

import getpass
import os
import plistlib
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import httpx

from ...settings import Settings
from .. import CommandError, deploy_path, replace_file

STOP_MARGIN_SECONDS = 15  # for the end itself, after the grace for running exchanges
PAUSE_SECONDS = 0.5  # between two looks or tries
LABEL = "com.mlx-stack.proxy"
TRIES = 5  # `bootstrap` fails with `Input/output error` while the old service still ends
GONE_SECONDS = 10  # for launchd itself, after the time that the proxy has to end (ExitTimeOut)
START_SECONDS = 60  # limit until the proxy answers
UNIT = "mlx-stack-proxy.service"
SYSTEM_UNITS = Path("/etc/systemd/system")
LINGERING = Path("/var/lib/systemd/linger")  # systemd keeps a file here for each lingering user
# Folders that ProtectHome hides from the system unit.
_HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"))
# Files of the kernel, each with its content where users may not make namespaces.
NO_NAMESPACES = {
    Path("/proc/sys/user/max_user_namespaces"): "0",
    Path("/proc/sys/kernel/unprivileged_userns_clone"): "0",
    Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"): "1",
}
_NO_SYSTEMD = "is systemd running here? A container has none: run `mlx-stack-proxy serve` there"
_NO_USERS_SYSTEMD = f"{_NO_SYSTEMD}. It can't be reached after `su`: log in as the user"


class Manager:
    """The steps that a manager of services takes. ``dry``: each is printed and not taken.

    ``system``: for a service of the machine, in place of the user's own.
    """

    definition: Path
    notes: tuple[str, ...] = ()  # what the user should know about the installed service

    def __init__(self, system: bool, dry: bool = False) -> None:
        self._dry = dry
        # The working folder, and the file with the service's environment variables.
        self.folder = Path("/var/lib/mlx-stack-proxy") if system else Path.home() / ".mlx-stack"
        self.env_file = (Path("/etc/mlx-stack-proxy") if system else self.folder) / "service.env"

    def make_folder(self, path: Path, mode: int = 0o700) -> None:
        if not self._printed(f"# make the folder {path} (mode {mode:04o}), if it does not exist"):
            path.mkdir(parents=True, exist_ok=True, mode=mode)

    def write(self, path: Path, content: str, mode: int = 0o644, shown: str = "") -> None:
        """Write a file. ``shown``: for a dry run, in place of a content with secrets."""
        if not self._printed(f"# write {path} (mode {mode:04o}):\n{shown or content}"):
            replace_file(path, content, mode)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder if it is empty: other files in it are not ours."""
        if self._printed(f"# remove {path}, if it exists"):
            return
        if not path.is_dir():
            path.unlink(missing_ok=True)
        elif not any(path.iterdir()):
            path.rmdir()

    def runs(self, *argv: str) -> bool:
        """Run a program; return whether it succeeded."""
        return self._printed(shlex.join(argv)) or run(*argv) == 0

    def until(self, description: str, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until ``condition()``, for ``seconds`` at most; return whether it became true.

        ``description``: the condition in words, for a dry run.
        """
        end = time.monotonic() + seconds
        is_met = self._printed(f"# wait until {description}") or condition()
        while not is_met and time.monotonic() < end:
            time.sleep(PAUSE_SECONDS)
            is_met = condition()
        return is_met

    def _printed(self, text: str) -> bool:
        """Print what would be done, if this is a dry run; return whether it is one."""
        if self._dry:
            print(text)
        return self._dry


def run(*argv: str, silent: bool = False) -> int:
    """Run a program; return its exit code. Raises :class:`CommandError` if it doesn't exist."""
    output = subprocess.DEVNULL if silent else None
    try:
        return subprocess.run(argv, check=False, stdout=output, stderr=output).returncode  # noqa: S603  # launchctl and the like
    except FileNotFoundError:
        raise CommandError(f"the program {argv[0]} is not installed") from None


def filled(name: str, **values: str) -> str:
    """Return a template of ``deploy/`` with each ``@NAME@`` replaced by its value."""
    text = deploy_path(name).read_text(encoding="utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text)


def answers(url: str) -> bool:
    """Whether a GET of the URL is answered with 200."""
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def stop_seconds(settings: Settings) -> str:
    """Return how long the manager waits for the end before it kills."""
    return str(int(settings.server.shutdown_grace_seconds) + STOP_MARGIN_SECONDS)


class Launchd(Manager):
    """The proxy as a user agent (macOS).

    launchd reads a definition only when it loads it, and ``bootout`` returns before the service is
    gone. So each change stops the service, waits until launchd no longer has it, loads it again,
    and waits until the proxy answers at its health URL, since launchd can't tell that it serves.
    """

    def __init__(self, dry: bool = False) -> None:
        super().__init__(False, dry)
        self.definition = Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._log = self.folder / "logs" / "proxy.log"
        kept = "the proxy rotates it itself, at 10 MB, and keeps five"
        self.notes = (f"the log is {self._log}; {kept}",)
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{LABEL}"

    def install(self, command: Sequence[str], settings: Settings) -> None:
        """Install and start the service, replacing an old one. Raises :class:`CommandError`."""
        self.make_folder(self._log.parent)
        self._stop()
        self.write(self.definition, self.text(command, settings))
        self._start(settings)

    def restart(self, settings: Settings) -> None:
        self._stop()
        self._start(settings)

    def uninstall(self) -> None:
        self._stop()
        self.remove(self.definition)

    def _stop(self) -> None:
        """Stop the service; wait until launchd has forgotten it. Raises :class:`CommandError`."""
        self.runs("launchctl", "bootout", self._target)
        seconds = self._installed().get("ExitTimeOut", 0) + GONE_SECONDS
        query = ("launchctl", "print", self._target)
        if not self.until(f"{LABEL} is gone", lambda: run(*query, silent=True) != 0, seconds):
            raise CommandError(f"launchd still has {LABEL} after {seconds} s")

    def _start(self, settings: Settings) -> None:
        url = f"{settings.server.url}/health"
        if not self.until(f"nothing answers at {url}", lambda: not answers(url), 0):
            raise CommandError(f"{url} still answers after the stop; another process?")
        enable = ("launchctl", "enable", self._target)
        if not self.runs(*enable):
            raise CommandError(f"`{shlex.join(enable)}` failed")
        load = ("launchctl", "bootstrap", self._domain, str(self.definition))
        for tries_left in reversed(range(TRIES)):
            if self.runs(*load):
                break
            if not tries_left:
                raise CommandError(f"`{shlex.join(load)}` failed")
            time.sleep(PAUSE_SECONDS)
        if not self.until(f"{url} answers", lambda: answers(url), START_SECONDS):
            self.logs(20, follow=False)
            raise CommandError(f"it does not answer at {url} after {START_SECONDS:g} s")

    def text(self, command: Sequence[str], settings: Settings) -> str:
        options = ("--env-file", str(self.env_file), "--log-file", str(self._log))
        # launchd restarts a service that fails, which is useless if its configuration is wrong.
        words = [*command, *options, "--config-error-exit", "0"]
        return filled(
            f"launchd/{LABEL}.plist",
            ARGUMENTS="\n    ".join(f"<string>{escape(word)}</string>" for word in words),
            FOLDER=escape(str(self.folder)),
            LOG=escape(str(self._log)),
            STOP_SECONDS=stop_seconds(settings),
        )

    def command(self) -> list[str] | None:
        """Return the command that the definition runs; None if there is no definition."""
        return self._installed().get("ProgramArguments")

    def _installed(self) -> dict[str, Any]:
        there = self.definition.exists()
        return plistlib.loads(self.definition.read_bytes()) if there else {}

    def status(self) -> int:
        return run("launchctl", "print", self._target)

    def logs(self, lines: int, follow: bool) -> int:
        # -F goes on with the new file after the log is rotated.
        return run("tail", "-n", str(lines), *(("-F",) if follow else ()), str(self._log))


class Systemd(Manager):
    """The proxy as a unit (Linux), the machine's or the user's.

    A user's unit gets its sandbox in a drop-in of its own, because some kernels let no user make
    the namespaces it needs.
    """

    def __init__(self, system: bool, dry: bool = False) -> None:
        super().__init__(system, dry)
        self._user = not system
        config_home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        self.definition = (SYSTEM_UNITS if system else config_home / "systemd" / "user") / UNIT
        self._systemctl = ("systemctl", *(("--user",) if self._user else ()))
        self._sandbox = self.definition.with_name(f"{UNIT}.d") / "sandbox.conf"
        # This file says that we enabled lingering. It may lie here: systemd reads only *.conf.
        self._linger_mark = self._sandbox.with_name("lingering")
        # Whether this kernel lets users' units have ProtectSystem and the rest of the sandbox.
        self.sandboxed = not any(
            file.exists() and file.read_text().strip() == no for file, no in NO_NAMESPACES.items()
        )
        if not self._user:
            kept = "state and captured failures are kept in /var/lib/mlx-stack-proxy"
            self.notes = (f"{kept}, whatever the file says",)
        elif not self.sandboxed:
            lacks = (
                "this kernel lets users create no namespaces: without ProtectSystem and the rest"
            )
            self.notes = (f"{lacks} of deploy/systemd/user/sandbox.conf (docs/install.md)",)

    def install(self, command: Sequence[str], settings: Settings) -> None:
        """Write, enable and start the unit. Raises :class:`CommandError`."""
        if self._user:
            state, failures = settings.state.path, settings.observability.capture_path
            kept_in = [Path(name).expanduser().absolute() for name in (state, failures)]
            kept_in[0] = kept_in[0].parent
            outside = [path for path in kept_in if not path.is_relative_to(self.folder)]
            writable = list(dict.fromkeys((self.folder, *outside)))
            for path in writable:
                self.make_folder(path)
            if self.sandboxed:
                places = " ".join(quoted(str(path)) for path in writable)
                self.write(self._sandbox, filled("systemd/user/sandbox.conf", WRITABLE=places))
            else:
                self.remove(self._sandbox)
        self.write(self.definition, self.text(command, settings))
        for words in (("daemon-reload",), ("enable", UNIT)):
            if not self.runs(*self._systemctl, *words):
                hint = _NO_USERS_SYSTEMD if self._user else _NO_SYSTEMD
                failed = f"`{shlex.join([*self._systemctl, *words])}` failed"
                raise CommandError(f"{failed}: {hint}" if "daemon-reload" in words else failed)
        user = getpass.getuser()
        # Without lingering the service would end with the user's last session.
        lingers = not self._user or (LINGERING / user).exists()
        if not lingers and self.runs("loginctl", "enable-linger", user):
            text = f"`service install` let {user} linger; `service uninstall` ends that.\n"
            self.write(self._linger_mark, text)
        self.restart(settings)

    def restart(self, _: Settings) -> None:
        """Restart the unit; systemd waits until the proxy says that it serves (``Type=notify``).

        Raises :class:`CommandError` if the proxy doesn't start.
        """
        if not self.runs(*self._systemctl, "restart", UNIT):
            self.logs(20, follow=False)
            raise CommandError("the service does not start; its last output is above")

    def uninstall(self) -> None:
        self.runs(*self._systemctl, "disable", "--now", UNIT)
        if self._linger_mark.exists():
            self.runs("loginctl", "disable-linger", getpass.getuser())
        own = (self._linger_mark, self._sandbox, self._sandbox.parent) if self._user else ()
        for path in (*own, self.definition):
            self.remove(path)
        self.runs(*self._systemctl, "daemon-reload")

    def text(self, command: Sequence[str], settings: Settings) -> str:
        """Return the unit. Raises :class:`CommandError` for a path that systemd can't hold."""
        program, *arguments = command
        if re.search(r"[\"'\\]", program):
            raise CommandError(f"{program}: systemd can't run a program whose path contains quotes")
        seen = () if self._user else (program, str(Path(sys.executable).resolve()), *arguments)
        for word in seen:
            if place := next((one for one in _HIDDEN if Path(word).is_relative_to(one)), None):
                raise CommandError(
                    f"{word} is below {place}, which a system service can't see: "
                    "install into /opt, configure in /etc (docs/install.md), or use --user"
                )
        return filled(
            f"systemd/{'user' if self._user else 'system'}/{UNIT}",
            COMMAND=" ".join([quoted(program), *(quoted(a, argument=True) for a in arguments)]),
            # In these two settings the path ends with the line: spaces need no quotes.
            ENV_FILE=str(self.env_file).replace("%", "%%"),
            FOLDER=str(self.folder).replace("%", "%%"),
            STOP_SECONDS=stop_seconds(settings),
        )

    def command(self) -> list[str] | None:
        """Return the command that the unit runs; None if there is no unit."""
        if not self.definition.exists():
            return None
        text = self.definition.read_text(encoding="utf-8")
        (words,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(words)]

    def status(self) -> int:
        return run(*self._systemctl, "status", "--no-pager", UNIT)

    def logs(self, lines: int, follow: bool) -> int:
        unit = ("--user-unit" if self._user else "--unit", UNIT, "--no-pager")
        return run("journalctl", *unit, "--lines", str(lines), *(("--follow",) if follow else ()))


def quoted(word: str, argument: bool = False) -> str:
    """Quote a word for a unit file. Raises :class:`CommandError` for control characters.

    ``argument``: whether it is a command's argument, in which ``$`` begins a variable.
    """
    if any(ord(letter) < 32 for letter in word):
        raise CommandError(f"{word!r}: a unit file can't hold a path with control characters")
    word = word.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    if argument:
        word = word.replace("$", "$$")
    return word if re.fullmatch(r"[\w/.:=%@+-]+", word) else f'"{word}"'
