"""The SQLite file of the store: open, lock, and set aside. All methods block.

They raise every failure as a ``StoreError`` with a sentence for people; as a ``FileUnusable`` if no
retry will make the file usable.

The journal mode is WAL with ``synchronous=NORMAL``: a commit is written to the log and not synced.
So a commit survives the process, however it is killed. A power cut loses commits that the system
has not yet put on the disk, at most those since the last :meth:`.Database.sync`; it corrupts
nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from .. import log
from . import schema
from .store import StoreError

# The write-ahead log grows to this many pages (16 MB) before a commit moves them into the file.
LOG_PAGES = 4_000
LARGEST_LOG = 1024 * 1024  # bytes to which SQLite truncates the log's file at a reset
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class FileUnusable(StoreError):
    """The file is no database, a corrupt one, or one of another schema version.

    ``label``: a word for the reason, part of the name under which the file is set aside.
    """

    def __init__(self, sentence: str, label: str = "corrupt") -> None:
        super().__init__(sentence)
        self.label = label


def connect(path: Path | None, timeout: float = 0.0) -> sqlite3.Connection:
    """Return a connection that several threads may use, one after the other.

    It begins no transaction by itself. ``path``: of a file that is there; None: in memory.
    ``timeout``: seconds to wait for another connection's lock.
    """
    connection = sqlite3.connect(
        ":memory:" if path is None else f"file:{quote(str(path))}?mode=rw",
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    connection.execute("PRAGMA cache_spill = OFF")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def in_memory() -> sqlite3.Connection:
    """Return a connection to a new database in memory, with all tables."""
    connection = connect(None)
    schema.prepare(connection)
    return connection


def copy_rows(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy all readable rows of a file that may be broken."""
    names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    target.execute("BEGIN IMMEDIATE")
    for (table,) in target.execute(names).fetchall():
        with contextlib.suppress(sqlite3.Error):
            for row in source.execute(f"SELECT * FROM {table}"):  # noqa: S608
                marks = ", ".join("?" * len(row))
                target.execute(f"REPLACE INTO {table} VALUES ({marks})", row)  # noqa: S608
    target.commit()


def close(connections: Iterable[sqlite3.Connection]) -> None:
    for connection in connections:
        with contextlib.suppress(sqlite3.Error):
            connection.close()


class StateFile:
    """One state file, with SQLite's ``-wal`` and ``-shm`` and our ``.lock`` next to it."""

    def __init__(self, path: str) -> None:
        """``path``: the database's; ``~`` is allowed."""
        self.path = Path(path).expanduser().absolute()
        self._lock_path = self.path.with_name(f"{self.path.name}.lock")
        self._identity: tuple[int, int] | None = None  # device and inode of the open file
        self._lock: int | None = None  # the lock file's descriptor; closing it gives up the lock
        # The rows of a file that broke or vanished, until they are in another one.
        self._rescued: sqlite3.Connection | None = None

    def open(
        self, error: StoreError | None = None, old: Sequence[sqlite3.Connection] = ()
    ) -> list[sqlite3.Connection]:
        """Lock the file, make or migrate it, and return two connections to it.

        ``error``: with which it failed in use. An unusable file is set aside first. ``old``: the
        connections to it; what they still can read goes into the file. Raises StoreError.
        """
        if old:
            self._rescued = in_memory()
            copy_rows(old[0], self._rescued)
            close(old)
        try:
            if isinstance(error, FileUnusable):
                raise error
            connections = self._open()
        except FileUnusable as unusable:
            aside = self._set_aside(unusable.label)
            log.get().error("state_file_set_aside", reason=str(unusable), now=str(aside))
            connections = self._open()
        if self._rescued is not None:
            with self._errors_as("can't be written"):
                copy_rows(self._rescued, connections[0])
            self._rescued = None
        return connections

    def replaced(self) -> bool:
        """Whether the open file was deleted, or another file lies at its path."""
        return self._identity != _identity(self.path)

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # Internals

    def _open(self) -> list[sqlite3.Connection]:
        with self._errors_as("can't be opened"), contextlib.ExitStack() as opened:
            self._take_lock()
            # SQLite would make the file readable for all; the log gets the same mode as the file.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            connections = []
            for _ in range(2):
                connection = opened.enter_context(contextlib.closing(connect(self.path)))
                connections.append(connection)
                self._prepare(connection)
            self._identity = _identity(self.path)
            opened.pop_all()
            return connections

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in schema.READABLE:
            raise FileUnusable(
                f"{self.path} has schema version {version}, "
                f"this proxy reads only version {schema.VERSION}",
                f"schema-{version}",
            )
        if version == 0:  # of a new file, which has no tables yet
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}").fetchall()
        connection.execute(f"PRAGMA journal_size_limit = {LARGEST_LOG}").fetchall()
        if odd := schema.prepare(connection):
            log.get().error("state_rows_set_aside", rows=odd, path=str(self.path))

    def _set_aside(self, label: str) -> Path:
        """Rename the file and its log, so that nothing is deleted; return the new path.

        The new name has ``label`` and the time (UTC) in it. Raises StoreError.
        """
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        with self._errors_as("can't be set aside"):
            name, number = f"{self.path.name}.{label}-{stamp}", 1
            aside = self.path.with_name(name)
            while aside.exists():
                number += 1
                aside = self.path.with_name(f"{name}-{number}")
            self.path.rename(aside)
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self.path}{suffix}").rename(f"{aside}{suffix}")
        return aside

    def _take_lock(self) -> None:
        """Lock the file for this process, because no other one would see its reservations."""
        if self._lock is not None:
            if _identity(self._lock) == _identity(self._lock_path):
                return
            self.unlock()  # the lock file was deleted, so the lock has no effect
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(lock, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(lock)
            raise StoreError(
                f"{self.path} is in use by another process (pid {owner}); give each proxy its own "
                "state.path, or use `state.backend: redis` to share one state"
            ) from None
        except OSError:
            os.close(lock)
            raise
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    @contextlib.contextmanager
    def _errors_as(self, problem: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise refusal(self.path, problem, error) from error


def refusal(path: object, problem: str, error: BaseException) -> StoreError:
    """Return an error of the system or of SQLite as a sentence for people.

    ``problem``: the sentence's predicate; its subject is the path.
    """
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        return StoreError(f"{path} {problem}: {error.strerror or error}")
    code = getattr(error, "sqlite_errorcode", None)
    error_type = FileUnusable if code is not None and code & 0xFF in _CORRUPT else StoreError
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return error_type(f"{path} {problem}: {error} ({name})")


def _identity(path: Path | int) -> tuple[int, int] | None:
    """Return device and inode of a path or descriptor; None if nothing is there."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
