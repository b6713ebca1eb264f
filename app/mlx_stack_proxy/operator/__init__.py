"""The commands of ``mlx-stack-proxy``; ``cli.py`` has their table. This file is what they share."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from ..printable import printable, without_credentials, wrapped

WIDTH = 80  # columns of what people read
# Where the files of `deploy/` are: the wheel has them as `mlx_stack_proxy/deploy/`.
_DEPLOY = (Path(__file__).parents[1] / "deploy", Path(__file__).parents[3] / "deploy")


class CommandError(Exception):
    """A command can't be done: its exit code is 1. The message is one line for the user."""


def say(text: str, first: str = "", rest: str = "", file: TextIO | None = None) -> None:
    """Print a text in lines of ``WIDTH`` columns; ``first``, ``rest``: margins.

    It is made printable, and no URL shows a password.
    """
    text = printable(without_credentials(text))
    print(*wrapped(text, WIDTH, first, rest), sep="\n", file=file, flush=True)


def print_error(message: object) -> None:
    """Print a message to standard error: its lines, made printable, without passwords of URLs."""
    lines = without_credentials(str(message)).split("\n")
    print("\n".join(map(printable, lines)), file=sys.stderr)


def discard_output() -> None:
    """Discard standard output from now on, including what is still buffered."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def deploy_path(name: str) -> Path:
    """Return the path of a file or folder below ``deploy/``, even if it doesn't exist."""
    for folder in _DEPLOY:
        if (folder / name).exists():
            return folder / name
    return _DEPLOY[-1] / name


def replace_file(path: Path, content: str, mode: int) -> None:
    """Write a file atomically, with its mode from the first byte on."""
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
