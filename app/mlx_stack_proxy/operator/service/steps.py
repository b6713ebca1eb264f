"""What a command of ``service`` would do, as plain data; and doing it."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ...frozen import frozen
from ..remote.client import OPENER


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
    """A folder only where it is empty: what else lies there is somebody else's."""

    path: Path


@frozen
class Run:
    """``may_fail``: what it says is passed on, and the next step follows in any case.

    ``hint``: what may be the matter where it fails. ``explained_by``: a program to run then, which
    shows more. ``again_on``: an exit code after which it is tried again, some times.
    ``then``: the steps that follow only where it succeeds.
    """

    argv: tuple[str, ...]
    may_fail: bool = False
    hint: str = ""
    explained_by: tuple[str, ...] = ()
    again_on: int | None = None
    then: tuple[Step, ...] = ()


@frozen
class UntilFails:
    """Run a program silently until it fails: what it asks for is gone then."""

    argv: tuple[str, ...]
    seconds: float


@frozen
class Silent:
    """See that nobody answers at a URL: who does is not the service."""

    url: str


@frozen
class UntilAnswers:
    """Ask a URL until it answers with 200. ``explained_by``: as of :class:`Run`."""

    url: str
    seconds: float
    explained_by: tuple[str, ...] = ()


Step = MakeFolder | WriteFile | Remove | Run | UntilFails | Silent | UntilAnswers
TRIES = 5  # of what fails as `again_on` says
PAUSE_SECONDS = 0.5  # between two looks or tries


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
        case Run(argv, may_fail):
            line = shlex.join(argv) + ("   # may fail" if may_fail else "")
            return "\n".join((line, *map(_shown, step.then)))
        case UntilFails(argv):
            return f"# until it fails: {shlex.join(argv)}"
        case Silent(url):
            return f"# see that nobody else answers at {url}"
        case UntilAnswers(url):
            return f"# wait until {url} answers"


def _do(step: Step) -> None:
    match step:
        case MakeFolder(path, mode):
            path.mkdir(parents=True, exist_ok=True, mode=mode)
        case WriteFile(path, content, mode, keep, _):
            if not (keep and path.exists()):
                _write(path, content, mode)
        case Remove(path):
            _remove(path)
        case Run():
            _run_step(step)
        case UntilFails() | Silent() | UntilAnswers():
            _wait(step)


def _remove(path: Path) -> None:
    if not path.is_dir():
        path.unlink(missing_ok=True)
    elif not any(path.iterdir()):
        path.rmdir()


def _run_step(step: Run) -> None:
    for left in reversed(range(TRIES)):
        code = run(step.argv)
        if code != step.again_on or not left:
            break
        time.sleep(PAUSE_SECONDS)
    if code == 0:
        carry_out(step.then)
    elif not step.may_fail:
        said = f"`{shlex.join(step.argv)}` failed with exit code {code}"
        raise _explained(f"{said}: {step.hint}" if step.hint else said, step.explained_by)


def _wait(step: UntilFails | Silent | UntilAnswers) -> None:
    match step:
        case UntilFails(argv, seconds):
            if not _comes(lambda: run(argv, silent=True) != 0, seconds):
                raise ServiceError(f"`{shlex.join(argv)}` still finds it after {seconds:g} s")
        case Silent(url):
            if _answers(url):
                raise ServiceError(f"{url} answers, though the service is stopped: who is it?")
        case UntilAnswers(url, seconds, explained_by):
            if not _comes(lambda: _answers(url), seconds):
                problem = f"it does not answer at {url} after {seconds:g} s"
                raise _explained(problem, explained_by)


def _comes(true: Callable[[], bool], seconds: float) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() >= end:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


def _answers(url: str) -> bool:
    try:
        with OPENER.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _explained(problem: str, explained_by: tuple[str, ...]) -> ServiceError:
    """The error, once the program that says more has said it."""
    if explained_by:
        run(explained_by)
    return ServiceError(problem)


def run(argv: tuple[str, ...], silent: bool = False) -> int:
    """Run a program of the system's with our output, or none; its exit code.

    Raises :class:`ServiceError` where it isn't there.
    """
    output = subprocess.DEVNULL if silent else None
    try:
        done = subprocess.run(argv, check=False, stdout=output, stderr=output)  # noqa: S603  # launchctl and the like
    except FileNotFoundError:
        raise ServiceError(f"the program {argv[0]} is not on this machine") from None
    return done.returncode


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
