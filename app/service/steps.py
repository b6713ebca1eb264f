"""What a command of ``service`` would do, as plain data; and doing it."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ..frozen import frozen


class ServiceError(Exception):
    """The service can't be set up or asked so; the message is one line for the user."""


@frozen
class MakeFolder:
    path: Path
    mode: int = 0o700


@frozen
class WriteFile:
    """``keep``: leave the file alone where it is there already. ``secret``: not to be shown."""

    path: Path
    content: str
    mode: int = 0o644
    keep: bool = False
    shown: str | None = None


@frozen
class Remove:
    path: Path


@frozen
class Run:
    """``may_fail``: what it says is passed on, and the next step follows in any case.

    ``hint``: what may be the matter where it fails.
    """

    argv: tuple[str, ...]
    may_fail: bool = False
    hint: str = ""


Step = MakeFolder | WriteFile | Remove | Run


def show(steps: Iterable[Step]) -> str:
    """The steps as a person reads them; files with what would be in them."""
    return "\n".join(_shown(step) for step in steps)


def carry_out(steps: Iterable[Step]) -> None:
    """Do them in order. Raises :class:`ServiceError` at the first that fails."""
    for step in steps:
        try:
            _do(step)
        except OSError as error:
            what = error.filename or _shown(step).partition("\n")[0]
            raise ServiceError(f"{what}: {error.strerror}") from None


def _shown(step: Step) -> str:
    match step:
        case MakeFolder(path, mode):
            return f"# make the folder {path} (mode {mode:04o}), if it isn't there"
        case WriteFile(path, content, mode, keep, shown):
            unless = ", unless it is there" if keep else ""
            return f"# write {path} (mode {mode:04o}){unless}:\n{shown or content}"
        case Remove(path):
            return f"# remove {path}, if it is there"
        case Run(argv, may_fail, _):
            return shlex.join(argv) + ("   # may fail" if may_fail else "")


def _do(step: Step) -> None:
    match step:
        case MakeFolder(path, mode):
            path.mkdir(parents=True, exist_ok=True, mode=mode)
        case WriteFile(path, content, mode, keep, _):
            if not (keep and path.exists()):
                _write(path, content, mode)
        case Remove(path):
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
        case Run(argv, may_fail, hint):
            run(argv, may_fail, hint)


def run(argv: tuple[str, ...], may_fail: bool = False, hint: str = "") -> int:
    """Run a program of the system's with our output; its exit code.

    Raises :class:`ServiceError` where it isn't there, or fails and may not.
    """
    try:
        code = subprocess.run(argv, check=False).returncode  # noqa: S603  # launchctl and the like
    except FileNotFoundError:
        raise ServiceError(f"the program {argv[0]} is not on this machine") from None
    if code and not may_fail:
        said = f"`{shlex.join(argv)}` failed with exit code {code}"
        raise ServiceError(f"{said}: {hint}" if hint else said)
    return code


def _write(path: Path, content: str, mode: int) -> None:
    """Whole or not at all, and never readable by more than it should be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
