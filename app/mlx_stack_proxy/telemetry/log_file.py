"""The log in a file that is bounded, for where nobody else sees to it (launchd).

Standard output and error are led into the file, so that what the interpreter or a library writes
there is in it as well; the workers of one proxy share it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from pathlib import Path

MAX_BYTES = 10 * 1024 * 1024
KEPT = 5
# What may be written from one look at the file's size to the next; also how late a process notices
# that another one has begun a new file.
LOOK_AFTER = 64 * 1024


class LogFile:
    """``path``: the file; the older ones are ``path.1`` (the last) to ``path.5``."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept
        self._written = 0
        self._led: tuple[int, ...] = ()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._handle = self._open()
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
        """Begin a new file where this one is full, or where another process has begun one."""
        self._written = 0
        with contextlib.suppress(OSError):  # a full disk, say: the log goes on where it is
            if os.fstat(self._handle).st_size >= self._max_bytes or not self._is_current():
                self._renew()

    def _renew(self) -> None:
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._is_current():
                for number in range(self._kept - 1, 0, -1):
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
                os.replace(self._path, f"{self._path}.1")
            fresh = self._open()
        finally:
            os.close(lock)
        os.dup2(fresh, self._handle)  # the number stays, for whoever has it
        os.close(fresh)
        self.lead(*self._led)

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._handle))
        except FileNotFoundError:
            return False

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._path, flags, 0o600)

    def lead(self, *handles: int) -> None:
        """What is written to these file numbers goes into the file, too, from now on."""
        self._led = handles
        for handle in handles:
            os.dup2(self._handle, handle)


def take_over(path: Path) -> None:
    """Write to ``path`` in place of standard output and error. Raises :class:`OSError`."""
    file = LogFile(path)
    file.lead(1, 2)
    sys.stdout = sys.stderr = file
