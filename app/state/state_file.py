"""The SQLite file behind the store: opened, locked, migrated, written, read, set aside.

Synchronous, and to be called from one thread. Everything that goes wrong is a ``StoreError`` with a
sentence; what can't be read as a database any more is a ``FileCorrupt``.

Settings: WAL with ``synchronous=NORMAL``: a commit is written to the log, not synced. What is
written survives the process, however it is killed. A power cut loses what the system has not yet
put on the disk, at most what came after the last :meth:`StateFile.sync`; it corrupts nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from . import rows, state_log
from .state_log import Batch, Contents
from .store import EventQuery, StoreError

BUSY_SECONDS = 1.0  # how long another program's transaction on the file is waited for
LOG_PAGES = 4_000  # of the log, after which a commit also moves them into the file: 16 MB
LARGEST_LOG = 16 * 1024 * 1024  # bytes that the write-ahead log keeps on the disk when it is empty

# One script for each version; what a script did, a later one changes.
MIGRATIONS = (
    """
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY, turns INTEGER NOT NULL, tier TEXT NOT NULL, window TEXT NOT NULL,
        sticky TEXT NOT NULL, first_seen REAL NOT NULL, last_seen REAL NOT NULL
    ) WITHOUT ROWID;
    -- Tokens by scope, as JSON: those of a session are forgotten together.
    CREATE TABLE purses (
        name TEXT PRIMARY KEY, used TEXT NOT NULL, touched REAL NOT NULL
    ) WITHOUT ROWID;
    -- [[minute, tokens], ...] as JSON, at most 61.
    CREATE TABLE hours (scope TEXT PRIMARY KEY, buckets TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE breakers (
        tier TEXT PRIMARY KEY, failures INTEGER NOT NULL, degraded_until REAL NOT NULL,
        cooldown REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE events (
        number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL,
        session TEXT NOT NULL, body TEXT NOT NULL
    );
    CREATE INDEX events_by_time ON events (time);
    CREATE INDEX events_by_kind ON events (kind);
    CREATE INDEX events_by_session ON events (session);
    """,
    # Instead of four tables, a log of their rows (state_log.py).
    """
    CREATE TABLE log (number INTEGER PRIMARY KEY, changes BLOB NOT NULL);
    INSERT INTO log (changes) SELECT json_object('sessions', json_array(json_array(
        id, turns, tier, json(window), json(sticky), first_seen, last_seen
    ))) FROM sessions;
    INSERT INTO log (changes)
        SELECT json_object('purses', json_array(json_array(name, json(used), touched))) FROM purses;
    INSERT INTO log (changes)
        SELECT json_object('hours', json_array(json_array(scope, json(buckets)))) FROM hours;
    INSERT INTO log (changes) SELECT json_object('breakers', json_array(json_array(
        tier, failures, degraded_until, cooldown
    ))) FROM breakers;
    DROP TABLE sessions;
    DROP TABLE purses;
    DROP TABLE hours;
    DROP TABLE breakers;
    """,
)

_LAST = "\U0010ffff"  # sorts behind all that a name is made of
_ADD = "INSERT INTO log (changes) VALUES (?)"
_FORGET = (
    "DELETE FROM log WHERE number IN "
    "(SELECT number FROM log WHERE number <= ? ORDER BY number LIMIT ?)"
)
# One statement for all rows, given as JSON. Python's module lets go of the interpreter's lock for
# each statement; getting it back from a busy event loop takes up to 5 ms, so that a statement a row
# would make a burst take seconds.
_ADD_EVENTS = (
    "INSERT OR REPLACE INTO events (number, time, kind, session, body) "
    "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), "
    "json_extract(value, '$[3]'), json_extract(value, '$[4]') FROM json_each(?)"
)
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class FileCorrupt(StoreError):
    """What is in the file is no database, or a broken one."""


class StateFile:
    """``path``: the database; beside it lie SQLite's ``-wal`` and ``-shm``, and our ``.lock``."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser().absolute()
        self._lock_path = self.path.with_name(f"{self.path.name}.lock")
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None  # device and inode
        self._lock: int | None = None  # the lock file's descriptor: held as long as it is open
        self.entries = 0  # in the log, those included that don't count any more

    def open(self) -> Contents:
        """Open or make the file and read it. Raises StoreError, FileCorrupt."""
        with self._said("can't be opened"):
            self._take_lock()
            self._connect()
            return self._read()

    def reopen(self) -> None:
        """Open the file anew, without reading it. Raises StoreError, FileCorrupt."""
        self._disconnect()
        with self._said("can't be opened"):
            self._drop_lock_if_gone()
            self._take_lock()
            self._connect()
            if not self._last_number():
                self.entries = 0

    def close(self) -> None:
        self._disconnect()
        self._drop_lock()

    def set_aside(self) -> Path:
        """Give a corrupt file another name, nothing is deleted; that name."""
        self._disconnect()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        with self._said("can't be set aside"):
            aside, number = self.path.with_name(f"{self.path.name}.corrupt-{stamp}"), 1
            while aside.exists():
                number += 1
                aside = self.path.with_name(f"{self.path.name}.corrupt-{stamp}-{number}")
            self.path.rename(aside)
            for suffix in ("-wal", "-shm"):
                beside = Path(f"{self.path}{suffix}")
                if beside.exists():
                    beside.rename(f"{aside}{suffix}")
        return aside

    def replaced(self) -> bool:
        """Whether the path no longer leads to the file that is open: deleted, or another."""
        try:
            return self._identity != _identity(self.path)
        except OSError:
            return True

    # Reading and writing

    def write(self, batch: Batch) -> None:
        """One transaction. Raises StoreError, FileCorrupt: then nothing of it is written."""
        try:
            if not batch.events:  # a statement by itself is a transaction, too
                self._open().execute(_ADD, (batch.changes,))
            else:
                with self._transaction() as connection:
                    if batch.changes is not None:
                        connection.execute(_ADD, (batch.changes,))
                    connection.execute(_ADD_EVENTS, (orjson.dumps(batch.events).decode(),))
        except sqlite3.Error as error:
            raise self._refusal("can't be written", error) from error
        self.entries += batch.entries

    def last_number(self) -> tuple[int, int]:
        """Of the log, and how many entries it has up to there. Raises StoreError, FileCorrupt."""
        with self._said("can't be read"):
            return self._last_number(), self.entries

    def forget_log(self, up_to: int, at_most: int) -> int:
        """Delete the oldest of the log, of which no entry counts any more; how much of it.

        The oldest first: what says that something is gone stays longer than what it was.
        Raises StoreError, FileCorrupt.
        """
        with self._said("can't be written"):
            return self._open().execute(_FORGET, (up_to, at_most)).rowcount

    def find_events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        """As ``Store.events``. Raises StoreError, FileCorrupt."""
        where = ["number > ?", "time >= ?"]
        given: list[Any] = [query.after or 0, query.since]
        if query.kind is not None:
            where.append("kind = ?")
            given.append(query.kind)
        if query.session is not None:
            where.append("session >= ? AND session < ?")
            given += [query.session, query.session + _LAST]
        if query.request_id is not None:
            where.append("json_extract(body, '$.request_id') = ?")
            given.append(query.request_id)
        newest_first = query.after is None
        sql = (
            f"SELECT number, body FROM events WHERE {' AND '.join(where)} "  # noqa: S608
            f"ORDER BY number {'DESC' if newest_first else 'ASC'} LIMIT ?"
        )
        with self._said("can't be read"):
            found = self._open().execute(sql, (*given, max(0, query.limit))).fetchall()
        if newest_first:
            found.reverse()
        return [(number, rows.event_of(body)) for number, body in found]

    def forget_events(self, before: float, keep: int, at_most: int) -> int:
        """Delete the oldest events: those before a time, and those beyond the ``keep`` newest.

        How many were deleted, ``at_most`` each time. Raises StoreError, FileCorrupt.
        """
        old = "SELECT number FROM events WHERE time < ? ORDER BY time LIMIT ?"
        # Numbers have no gaps but where something is too old anyway.
        surplus = (
            "SELECT number FROM events WHERE number <= (SELECT max(number) FROM events) - ? "
            "ORDER BY number LIMIT ?"
        )
        with self._said("can't be written"), self._transaction() as connection:
            forgotten = 0
            for which, bound in ((old, before), (surplus, keep)):
                sql = f"DELETE FROM events WHERE number IN ({which})"  # noqa: S608
                forgotten += connection.execute(sql, (bound, at_most - forgotten)).rowcount
            return forgotten

    def sync(self) -> None:
        """Put all on the disk, for a power cut, and give free pages back; in small steps."""
        with self._said("can't be written"):
            connection = self._open()
            connection.execute("PRAGMA incremental_vacuum(64)").fetchall()
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _read(self) -> Contents:
        execute = self._open().execute
        last = execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        log = execute("SELECT changes FROM log ORDER BY number DESC")
        try:
            contents = state_log.decode(changes for (changes,) in log)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise FileCorrupt(f"{self.path} holds rows that make no sense: {error}") from error
        contents.last_event = last[0] if last else 0
        self.entries = contents.entries
        return contents

    def _last_number(self) -> int:
        found = self._open().execute("SELECT max(number) FROM log").fetchone()
        return found[0] or 0

    # Its own

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self.path} is not open")
        return self._connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite has ended it itself after some errors
                connection.execute("ROLLBACK")
            raise

    def _take_lock(self) -> None:
        """One process counts in a file; two would each overwrite what the other has counted."""
        if self._lock is not None:
            return
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

    def _drop_lock_if_gone(self) -> None:
        """A lock whose file was deleted keeps nobody out; as long as it does, it is kept."""
        try:
            gone = self._lock is not None and _identity(self._lock) != _identity(self._lock_path)
        except FileNotFoundError:
            gone = True
        if gone:
            self._drop_lock()

    def _connect(self) -> None:
        # Made by us, for SQLite would make it readable for all; its log gets the same mode.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._connection = connection
        try:
            version = self._version(connection)
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}").fetchall()
            connection.execute(f"PRAGMA journal_size_limit = {LARGEST_LOG}").fetchall()
            for number, script in enumerate(MIGRATIONS[version:], version + 1):
                connection.executescript(
                    f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT;"
                )
            self._identity = _identity(self.path)
        except BaseException:
            self._disconnect()
            raise

    def _version(self, connection: sqlite3.Connection) -> int:
        """How many of the migrations the file has seen."""
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{self.path} was written by a newer version (schema {version}, this one knows "
                f"{len(MIGRATIONS)}); it is left as it is"
            )
        return version

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _said(self, what: str) -> Iterator[None]:
        """Translate what the system and SQLite raise."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._refusal(what, error) from error

    def _refusal(self, what: str, error: sqlite3.Error | OSError) -> StoreError:
        if isinstance(error, OSError):
            return StoreError(f"{self.path} {what}: {error.strerror or error}")
        code = getattr(error, "sqlite_errorcode", None)
        kind = FileCorrupt if code is not None and code & 0xFF in _CORRUPT else StoreError
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        return kind(f"{self.path} {what}: {error} ({name})")


def _identity(path: Path | int) -> tuple[int, int]:
    """``path``: or a descriptor."""
    found = os.stat(path)
    return found.st_dev, found.st_ino
