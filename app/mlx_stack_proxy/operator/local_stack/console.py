"""What `up` says and why it refuses: plain lines, the same in a terminal, a pipe and a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO


class UpError(Exception):
    """The stack can't be started as it is asked for; the message is one line for the user."""


class Console:
    """Lines to standard output, each out at once; a reader that has gone away stops nothing."""

    def __init__(self, out: TextIO | None = None, name_width: int = 8) -> None:
        self._out = out or sys.stdout
        self.name_width = name_width

    def say(self, text: str = "") -> None:
        """One line."""
        try:
            self._out.write(text + "\n")
            self._out.flush()
        except (OSError, ValueError):
            # The terminal or the pipe's reader has gone. Nothing may fail for it, and Python must
            # not try once more at its end.
            self._out = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            sys.stdout = self._out

    def child(self, name: str, state: str, detail: str) -> None:
        """A line about one child, in columns."""
        self.say(f"  {name:<{self.name_width}}  {state:<10} {detail}".rstrip())


def shown(path: Path) -> str:
    """A path as people write it, with ``~`` for their own folder."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
