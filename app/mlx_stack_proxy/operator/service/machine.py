"""The steps that change this machine for ``service``: files, folders and programs."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from .. import CommandError, deploy_path, replace_file

PAUSE_SECONDS = 0.5  # between two looks or tries


class Machine:
    """Takes each step, or with ``dry`` only prints it."""

    def __init__(self, dry: bool) -> None:
        self._dry = dry

    def folder(self, path: Path, mode: int = 0o700) -> None:
        if not self._printed(f"# make the folder {path} (mode {mode:04o}), if it does not exist"):
            path.mkdir(parents=True, exist_ok=True, mode=mode)

    def write(self, path: Path, content: str, mode: int = 0o644, shown: str | None = None) -> None:
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

    def succeeds(self, *argv: str) -> bool:
        """Run a program, which prints to our output; return whether its exit code was 0."""
        return self._printed(shlex.join(argv)) or run(argv) == 0

    def run(self, *argv: str, hint: str = "", tries: int = 1) -> None:
        """Run a program up to ``tries`` times. Raises :class:`CommandError` if it always fails.

        ``hint``: what may be the reason, for the message.
        """
        for tries_left in reversed(range(tries)):
            if self.succeeds(*argv):
                return
            time.sleep(PAUSE_SECONDS if tries_left else 0)
        raise CommandError(f"`{shlex.join(argv)}` failed{': ' if hint else ''}{hint}")

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


def run(argv: tuple[str, ...], silent: bool = False) -> int:
    """Run a program; return its exit code. Raises :class:`CommandError` if it doesn't exist."""
    output = subprocess.DEVNULL if silent else None
    try:
        return subprocess.run(argv, check=False, stdout=output, stderr=output).returncode  # noqa: S603  # launchctl and the like
    except FileNotFoundError:
        raise CommandError(f"the program {argv[0]} is not on this machine") from None


def filled(name: str, values: Mapping[str, str]) -> str:
    """Return a template of ``deploy/`` with each ``@NAME@`` replaced by its value."""
    text = deploy_path(name).read_text(encoding="utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text)


def answers(url: str) -> bool:
    """Whether a GET of the URL is answered with 200."""
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
