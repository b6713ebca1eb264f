"""The output of ``up``: plain lines, the same in a terminal, a pipe and a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO


class UpError(Exception):
    """The stack can't be started as the user asked; the message is one line for the user."""


class Console:
    """Writes lines to standard output, flushed at once; ``up`` goes on if the reader is gone.

    ``name_width``: the width of the column with the children's names.
    """

    def __init__(self, out: TextIO | None = None, name_width: int = 8) -> None:
        self._out = out or sys.stdout
        self.name_width = name_width

    def say(self, text: str = "") -> None:
        """Write a line."""
        try:
            self._out.write(text + "\n")
            self._out.flush()
        except (OSError, ValueError):
            # The terminal or the pipe's reader is gone. `up` must not fail for that, and Python
            # must not fail when it flushes standard output at its end.
            self._out = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            sys.stdout = self._out

    def child(self, name: str, state: str, detail: str) -> None:
        """Write a line about one child, in columns."""
        self.say(f"  {name:<{self.name_width}}  {state:<10} {detail}".rstrip())


def shown(path: Path) -> str:
    """Return a path as people write it, with ``~`` for the home folder."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
