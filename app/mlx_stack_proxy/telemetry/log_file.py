"""A log file of bounded size, for service managers that don't bound it themselves (launchd).

``take_over`` redirects standard output and error to the file, so that it also has the lines that
the interpreter and libraries write there. The workers of one proxy share the file. A full file is
copied and emptied, not renamed, so that it stays the file which every worker has open.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from pathlib import Path

MAX_BYTES = 10 * 1024 * 1024
KEPT = 5  # older files
LOOK_AFTER = 64 * 1024  # bytes that a process writes until it looks at the file's size again


class LogFile:
    """A text stream into the log file; ``path.1`` to ``path.5`` hold older lines, 1 the newest."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> None:
        """Open or make the file. Raises :class:`OSError`."""
        self._path = path
        self._max_bytes = max_bytes
        self._kept_files = kept
        self._written_bytes = 0  # bytes since the last look at the file's size
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._handle = _open(str(path), os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._rotate_if_full()

    def write(self, text: str) -> int:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            written = os.write(self._handle, data)
            self._written_bytes += written
            data = data[written:]
        if self._written_bytes >= min(LOOK_AFTER, self._max_bytes):
            self._rotate_if_full()
        return len(text)

    def flush(self) -> None:
        """Do nothing: ``write`` buffers nothing."""

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._handle

    def _rotate_if_full(self) -> None:
        """If the file is full, move its content to ``path.1``."""
        self._written_bytes = 0
        with contextlib.suppress(OSError):  # e.g. a full disk: the log goes on in this file
            fcntl.flock(self._handle, fcntl.LOCK_EX)
            try:
                if os.fstat(self._handle).st_size >= self._max_bytes:
                    self._rotate()
            finally:
                fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _rotate(self) -> None:
        for number in range(self._kept_files - 1, 0, -1):
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
    """Redirect standard output and error to the log file ``path``. Raises :class:`OSError`."""
    file = LogFile(path)
    for number in (1, 2):
        os.dup2(file.fileno(), number)
    sys.stdout = sys.stderr = file
