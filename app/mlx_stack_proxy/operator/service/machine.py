"""What a command of ``service`` does to this machine, or only says that it would."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ..remote.client import OPENER

PAUSE_SECONDS = 0.5  # between two looks or tries


class ServiceError(Exception):
    """The service can't be set up or asked so; the message is one line for the user."""


class Machine:
    """``dry``: only print each step, as a person reads it."""

    def __init__(self, dry: bool) -> None:
        self._dry = dry

    def folder(self, path: Path, mode: int = 0o700) -> None:
        if not self._only_said(f"# make the folder {path} (mode {mode:04o}), if it isn't there"):
            path.mkdir(parents=True, exist_ok=True, mode=mode)

    def write(self, path: Path, content: str, mode: int = 0o644, shown: str | None = None) -> None:
        """Whole or not at all, and never readable by more than it should be.

        ``shown``: what to print in place of a content that holds secrets.
        """
        if self._only_said(f"# write {path} (mode {mode:04o}):\n{shown or content}"):
            return
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

    def remove(self, path: Path) -> None:
        """A folder only where it is empty: what else lies there is somebody else's."""
        if self._only_said(f"# remove {path}, if it is there"):
            return
        if not path.is_dir():
            path.unlink(missing_ok=True)
        elif not any(path.iterdir()):
            path.rmdir()

    def succeeds(self, *argv: str) -> bool:
        """Run a program of the system's, with our output; whether it went well."""
        return self._only_said(shlex.join(argv)) or run(argv) == 0

    def run(self, *argv: str, hint: str = "", tries: int = 1) -> None:
        """The same. Raises :class:`ServiceError` where it fails, with what may be the matter."""
        for left in reversed(range(tries)):
            if self.succeeds(*argv):
                return
            time.sleep(PAUSE_SECONDS if left else 0)
        raise ServiceError(f"`{shlex.join(argv)}` failed{': ' if hint else ''}{hint}")

    def until(self, what: str, true: Callable[[], bool], seconds: float) -> bool:
        """Wait for something to become true, so long at most; whether it did."""
        if self._only_said(f"# wait until {what}"):
            return True
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() >= end:
                return False
            time.sleep(PAUSE_SECONDS)
        return True

    def _only_said(self, text: str) -> bool:
        if self._dry:
            print(text)
        return self._dry


def run(argv: tuple[str, ...], silent: bool = False) -> int:
    """Run a program of the system's; its exit code. Raises :class:`ServiceError`: there is none."""
    output = subprocess.DEVNULL if silent else None
    try:
        done = subprocess.run(argv, check=False, stdout=output, stderr=output)  # noqa: S603  # launchctl and the like
    except FileNotFoundError:
        raise ServiceError(f"the program {argv[0]} is not on this machine") from None
    return done.returncode


def answers(url: str) -> bool:
    """Whether a GET is answered with 200."""
    try:
        with OPENER.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
