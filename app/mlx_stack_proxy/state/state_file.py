"""The SQLite file behind the store: open, lock, read, write, and set aside.

One table has the events, the other all else: a row for each session, purse, rolling hour, breaker
and row of the hours' counters. One transaction replaces the rows that have changed, and deletes
rows that the ledger has dropped. All methods block, and one thread calls them (``keeper.py``). They
raise every failure as a ``StoreError`` with a sentence for people; as a ``FileUnusable`` if no
retry will make the file usable.

The journal mode is WAL with ``synchronous=NORMAL``: a commit is written to the log and not synced.
So a commit survives the process, however it is killed. A power cut loses commits that the system
has not yet put on the disk, at most those since the last :meth:`StateFile.sync`; it corrupts
nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from . import rows
from .rows import Batch, Contents
from .store import EventQuery, Record, StoreError

BUSY_SECONDS = 1.0  # how long SQLite waits for another program's transaction on the file
# The write-ahead log grows to so many pages (16 MB) before a commit also moves them into the file.
# With SQLite's default of 1,000 a commit at 100,000 sessions takes a third more CPU.
LOG_PAGES = 4_000
LARGEST_LOG = 16 * 1024 * 1024  # bytes to which SQLite cuts the log's file when the log is empty

# Raise it with each change of what the tables hold. The keeper sets files of other versions aside,
# except for the readable ones.
SCHEMA_VERSION = 4
READABLE = (0, 3, SCHEMA_VERSION)  # 0: a new file; 3: a file without the hours' counters
SCHEMA = f"""
    BEGIN IMMEDIATE;
    -- kind: sessions, purses, hours, breakers or counts. content: JSON.
    CREATE TABLE IF NOT EXISTS entries (
        name TEXT, kind TEXT, content TEXT NOT NULL, PRIMARY KEY (name, kind)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS events (
        number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL,
        session TEXT NOT NULL, body TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS records (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL, at REAL NOT NULL, agent TEXT NOT NULL,
        session TEXT NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS records_by_id ON records (id);
    CREATE INDEX IF NOT EXISTS records_by_agent ON records (agent);
    CREATE INDEX IF NOT EXISTS events_by_time ON events (time);
    CREATE INDEX IF NOT EXISTS events_by_kind ON events (kind);
    CREATE INDEX IF NOT EXISTS events_by_session ON events (session);
    PRAGMA user_version = {SCHEMA_VERSION};
    COMMIT
"""

# The statements of a transaction, in the order of ``Batch.values``.
_WRITES = (
    "REPLACE INTO entries VALUES {}",
    "DELETE FROM entries WHERE (name, kind) IN (VALUES {})",
    "REPLACE INTO events VALUES {}",
    "INSERT INTO records (id, at, agent, session, body) VALUES {}",
)
_SET_ROW_ASIDE = (
    f"UPDATE OR REPLACE entries SET kind = '{rows.ODD}' || kind "  # noqa: S608
    "WHERE name = ? AND kind = ?"
)
# SQL conditions on an event, by the EventQuery field that asks for them.
_CONDITIONS = {
    "after": "number > :after",
    "before": "number < :before",
    "since": "time >= :since",
    "kind": "kind = :kind",
    "hidden": "kind <> :hidden",
    "session": "session >= :session AND session < :session || char(1114111)",
    "request_id": "CASE WHEN json_valid(body) THEN json_extract(body, '$.request_id') END "
    "= :request_id",
    "agent": "CASE WHEN json_valid(body) THEN json_extract(body, '$.agent') END = :agent",
}
# Only deleted old events leave gaps in the numbers, so a number tells how many events are newer.
_FORGET_EVENTS = (
    "DELETE FROM events WHERE number IN (SELECT number FROM events "
    "WHERE time < ? OR number <= (SELECT max(number) FROM events) - ? LIMIT ?)"
)
# The newest records stay, as many as their number and the bytes of their bodies allow.
_FORGET_RECORDS = (
    "DELETE FROM records WHERE number <= (SELECT max(number) FROM records) - ? "
    "OR number IN (SELECT number FROM (SELECT number, sum(length(body)) "
    "OVER (ORDER BY number DESC) AS bytes FROM records) WHERE bytes > ?)"
)
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class FileUnusable(StoreError):
    """The file is no database, a corrupt one, or one of another schema version.

    ``label``: a word for the reason, part of the name under which the file is set aside.
    """

    def __init__(self, sentence: str, label: str = "corrupt") -> None:
        super().__init__(sentence)
        self.label = label


class StateFile:
    """One state file, with SQLite's ``-wal`` and ``-shm`` and our ``.lock`` beside it."""

    def __init__(self, path: str) -> None:
        """``path``: the database's; ``~`` is allowed."""
        self.path = Path(path).expanduser().absolute()
        self._lock_path = self.path.with_name(f"{self.path.name}.lock")
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None  # device and inode of the open file
        self._lock: int | None = None  # the lock file's descriptor; closing it gives up the lock

    def open(self) -> bool:
        """Open the file, or open it again; make it if there is none.

        Return whether the file is new, or another file than was open before. Raises StoreError,
        FileUnusable.
        """
        previous = self._identity
        self._disconnect()
        with self._errors_as("can't be opened"):
            self._claim()
            is_new = self._connect()
        return is_new or self._identity != previous

    def close(self) -> None:
        self._disconnect()
        self._drop_lock()

    def set_aside(self, label: str) -> Path:
        """Rename the file and its log, so that nothing is deleted; return the new path.

        The new name has ``label`` and the time (UTC) in it. Raises StoreError.
        """
        self._disconnect()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        with self._errors_as("can't be set aside"):
            name, number = f"{self.path.name}.{label}-{stamp}", 1
            aside = self.path.with_name(name)
            while aside.exists():
                number += 1
                aside = self.path.with_name(f"{name}-{number}")
            self.path.rename(aside)
            for suffix in ("-wal", "-shm"):
                beside = Path(f"{self.path}{suffix}")
                if beside.exists():
                    beside.rename(f"{aside}{suffix}")
        return aside

    def replaced(self) -> bool:
        """Whether the open file was deleted, or another file lies at its path."""
        return self._identity != _identity(self.path)

    # Reading and writing

    def read(self) -> tuple[Contents, int, int]:
        """Return the entries, the highest number that an event ever had, and the odd rows' number.

        Rows that make no sense are kept under a kind of their own. Raises StoreError; FileUnusable
        if the file is corrupt.
        """
        with self._errors_as("can't be read"), self._open() as connection:
            entries = connection.execute("SELECT name, kind, content FROM entries")
            contents, odd = rows.contents(entries)
            if odd:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(_SET_ROW_ASIDE, odd)
            numbers = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
            last = connection.execute(numbers).fetchone()
        return contents, last[0] if last else 0, len(odd)

    def write(self, batch: Batch) -> None:
        """Write a batch in one transaction.

        Raises StoreError, FileUnusable; then nothing of the batch is written.
        """
        statements = {
            sql: values for sql, values in zip(_WRITES, batch.values(), strict=True) if values
        }
        # The connection's context commits or rolls back.
        with self._errors_as("can't be written"), self._open() as connection:
            if len(statements) > 1:  # one statement alone is a transaction
                connection.execute("BEGIN IMMEDIATE")
            for sql, values in statements.items():
                _all_at_once(connection, sql, values)

    def find_events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        """Return events as ``Store.events`` does. Raises StoreError, FileUnusable."""
        values, conditions = _conditions(query)
        newest_first = query.after is None
        sql = (
            f"SELECT number, body FROM events WHERE {conditions} "  # noqa: S608
            f"ORDER BY number {'DESC' if newest_first else 'ASC'} LIMIT :most"
        )
        with self._errors_as("can't be read"):
            records = self._open().execute(sql, {**values, "most": max(0, query.limit)}).fetchall()
        events: list[tuple[int, Mapping[str, Any]]] = []
        for number, body in records[::-1] if newest_first else records:
            with contextlib.suppress(orjson.JSONDecodeError):
                events.append((number, orjson.loads(body)))
        return events

    def count_events(self, query: EventQuery) -> int:
        """Count events as ``Store.count_events`` does. Raises StoreError, FileUnusable."""
        values, conditions = _conditions(query)
        with self._errors_as("can't be read"):
            sql = f"SELECT count(*) FROM events WHERE {conditions}"  # noqa: S608
            count: int = self._open().execute(sql, values).fetchone()[0]
        return count

    def forget_events(self, before: float, keep: int, at_most: int) -> int:
        """Delete events older than ``before``, and older than the ``keep`` newest ones.

        Delete at most ``at_most`` events, and return how many. Raises StoreError, FileUnusable.
        """
        with self._errors_as("can't be written"):
            return self._open().execute(_FORGET_EVENTS, (before, keep, at_most)).rowcount

    def find_records(self, column: str, value: str | None, limit: int) -> list[Record]:
        """Return the newest records, the newest first: all, or those with a value in a column.

        Raises StoreError, FileUnusable.
        """
        where = f"WHERE {column} = ?" if value is not None else ""
        sql = f"SELECT id, at, agent, session, body FROM records {where} "  # noqa: S608
        values = (limit,) if value is None else (value, limit)
        with self._errors_as("can't be read"):
            rows = self._open().execute(f"{sql} ORDER BY number DESC LIMIT ?", values)
            return [Record(*row) for row in rows]

    def forget_records(self, keep: int, most_bytes: int) -> None:
        """Delete all records but the newest. Raises StoreError, FileUnusable."""
        with self._errors_as("can't be written"):
            self._open().execute(_FORGET_RECORDS, (keep, most_bytes))

    def sync(self) -> None:
        """Put commits on the disk, so that a power cut can't lose them; free some unused pages.

        Raises StoreError, FileUnusable.
        """
        with self._errors_as("can't be written"):
            connection = self._open()
            connection.execute("PRAGMA incremental_vacuum(64)").fetchall()
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    # Internals

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self.path} is not open")
        return self._connection

    def _claim(self) -> None:
        """Lock the file, and make it if there is none."""
        self._take_lock()
        # SQLite would make the file readable for all; the log gets the same mode as the file.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))

    def _take_lock(self) -> None:
        """Lock the file for this process: a second one would overwrite the first one's counts."""
        if self._lock is not None:
            if _identity(self._lock) == _identity(self._lock_path):
                return
            self._drop_lock()  # the lock file was deleted, so the lock keeps nobody out
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

    def _drop_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _connect(self) -> bool:
        """Connect to the file; return whether its tables had to be made."""
        self._connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            is_new = self._prepare(self._connection)
            self._identity = _identity(self.path)
            return is_new
        except BaseException:
            self._disconnect()
            raise

    def _prepare(self, connection: sqlite3.Connection) -> bool:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in READABLE:
            raise FileUnusable(
                f"{self.path} has schema version {version}, "
                f"this proxy reads version {SCHEMA_VERSION} alone",
                f"schema-{version}",
            )
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}").fetchall()
        connection.execute(f"PRAGMA journal_size_limit = {LARGEST_LOG}").fetchall()
        connection.executescript(SCHEMA)
        return version == 0

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _errors_as(self, problem: str) -> Iterator[None]:
        """Raise errors of the system and of SQLite as StoreError or FileUnusable, with a sentence.

        ``problem``: the sentence's predicate; its subject is the path.
        """
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._refusal(problem, error) from error

    def _refusal(self, problem: str, error: sqlite3.Error | OSError) -> StoreError:
        if isinstance(error, OSError):
            return StoreError(f"{self.path} {problem}: {error.strerror or error}")
        code = getattr(error, "sqlite_errorcode", None)
        error_type = FileUnusable if code is not None and code & 0xFF in _CORRUPT else StoreError
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        return error_type(f"{self.path} {problem}: {error} ({name})")


class MemoryFile(StateFile):
    """A database in this process's memory, for ``state.backend: memory``."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.path = Path(":memory:")  # as SQLite calls it

    def _claim(self) -> None:
        """Do nothing: no other process can reach this memory."""


def _conditions(query: EventQuery) -> tuple[dict[str, Any], str]:
    """Return a query's values by name, and its conditions in SQL."""
    values = {name: getattr(query, name) for name in _CONDITIONS}
    return values, " AND ".join(_CONDITIONS[name] for name in values if values[name] is not None)


def _identity(path: Path | int) -> tuple[int, int] | None:
    """Return device and inode of a path or descriptor; None if nothing is there."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _all_at_once(
    connection: sqlite3.Connection, sql: str, parameters: Sequence[tuple[Any, ...]]
) -> sqlite3.Cursor:
    """Run one statement for all rows of ``parameters``; ``?`` marks replace ``{}`` in ``sql``.

    Python's module releases the interpreter's lock for each statement, and getting it back from a
    busy event loop takes up to 5 ms. With a statement for each row, a burst would take seconds.
    """
    row_marks = f"({', '.join('?' * len(parameters[0]))})"
    marks = ", ".join([row_marks] * len(parameters))
    return connection.execute(sql.format(marks), list(chain.from_iterable(parameters)))
