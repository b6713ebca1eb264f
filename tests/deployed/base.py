"""A small Debian 12, and how pip gets its packages in it: as on this machine."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SUITE = "bookworm"
PACKAGES = (
    *("python3", "python3-venv", "python-is-python3", "ca-certificates"),
    *("systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "polkitd"),
)
_NOT_NEEDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
_SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources"))
GENEROUS = 60  # seconds for what takes one or two; a hang is what would fail


def run(*argv: str | Path, timeout: float = 300, **options: object) -> str:
    """A program's output. Raises ``AssertionError`` with all it said where it fails."""
    code, said = outcome(*argv, timeout=timeout, **options)
    assert code == 0, f"{' '.join(map(str, argv))}: exit code {code}\n{said}"
    return said


def outcome(*argv: str | Path, timeout: float = 300, **options: object) -> tuple[int, str]:
    """A program's exit code and output, both streams together."""
    done = subprocess.run(  # type: ignore[call-overload]
        [str(word) for word in argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=timeout,
        **options,
    )
    return done.returncode, done.stdout


def eventually(true: Callable[[], object], what: str, seconds: float = GENEROUS) -> None:
    """Wait until something is so. Raises ``AssertionError`` where it never is."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"it never happened: {what}"
        time.sleep(0.1)


def unmount_below(folder: Path) -> None:
    """What is left mounted there, the innermost first."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    places = [line.split()[1] for line in lines]
    for place in reversed([one for one in places if Path(one).is_relative_to(folder)]):
        run("umount", place)


def make_root(root: Path) -> None:
    """Debian in a folder, from where this machine has its own packages."""
    settings = root.with_name("apt.conf")
    settings.write_text(run("apt-config", "dump", "Acquire"), encoding="utf-8")
    sources = [file for file in _SOURCES if file.exists() and SUITE in file.read_text()]
    run(
        *("mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
        *(f"--dpkgopt=path-exclude={place}" for place in _NOT_NEEDED),
        *(f"--aptopt={settings}", SUITE, root, *sources),
        timeout=600,
    )


def pip_mounts(folder: Path) -> list[tuple[Path, str]]:
    """What pip needs in the root to find packages as it does here: (here, there) for each."""
    file = folder / "pip.conf"
    listed = run(sys.executable, "-m", "pip", "config", "list").splitlines()
    given = {}
    for line in listed:  # global.timeout='60', :env:.timeout='60'; the latter is the stronger
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in ("global", "install", ":env:"):
            given[key] = " ".join(str(ast.literal_eval(value)).split())
    lines = (f"{key} = {value}" for key, value in given.items())
    file.write_text("\n".join(("[global]", *lines, "")), encoding="utf-8")
    words = [word for value in given.values() for word in value.split()]
    local = {Path(word) for word in words if word.startswith("/")}
    # What an index of files lists lies beside it.
    local |= {Path(word.removeprefix("file://")).parent for word in words if "file://" in word}
    roots = [one for one in sorted(local) if one.exists() and not local & {*one.parents}]
    return [(file, "/etc/pip.conf"), *((path, str(path)) for path in roots)]
