"""The log in a file that is bounded, for where nobody else sees to it (launchd).

Standard output and error are led into the file, so that what the interpreter or a library writes
there is in it as well; the workers of one proxy share it. A file that is full is copied and
emptied, and stays open wherever it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from pathlib import Path

MAX_BYTES = 10 * 1024 * 1024
KEPT = 5
LOOK_AFTER = 64 * 1024  # what may be written from one look at the file's size to the next


class LogFile:
    """``path``: the file; the older ones are ``path.1`` (the last) to ``path.5``."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept
        self._written = 0
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._handle = _open(str(path), os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._look()

    def write(self, text: str) -> int:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            done = os.write(self._handle, data)
            self._written += done
            data = data[done:]
        if self._written >= min(LOOK_AFTER, self._max_bytes):
            self._look()
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._handle

    def _look(self) -> None:
        """Set aside what is in the file, where that is full."""
        self._written = 0
        with contextlib.suppress(OSError):  # a full disk, say: the log goes on where it is
            fcntl.flock(self._handle, fcntl.LOCK_EX)
            try:
                if os.fstat(self._handle).st_size >= self._max_bytes:
                    self._set_aside()
            finally:
                fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _set_aside(self) -> None:
        for number in range(self._kept - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        with os.fdopen(os.dup(self._handle), "rb") as full:
            full.seek(0)
            with open(f"{self._path}.1", "wb", opener=_open) as copy:
                shutil.copyfileobj(full, copy)
        os.ftruncate(self._handle, 0)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def take_over(path: Path) -> None:
    """Write to ``path`` in place of standard output and error. Raises :class:`OSError`."""
    file = LogFile(path)
    for number in (1, 2):
        os.dup2(file.fileno(), number)
    sys.stdout = sys.stderr = file
