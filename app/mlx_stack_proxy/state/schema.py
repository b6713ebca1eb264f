"""The tables of the SQLite file, and how files of earlier versions become such a one.

Version 0.1 wrote schema 3 and version 0.2 schema 4: one table ``entries`` with a row for each
session, its tokens (``purses``), rolling hour, breaker and row of the hours' counters, as name,
kind and JSON.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from .store import SESSION

VERSION: Final = 7  # raise it with each change of the tables

# There are no secondary indexes: each would add a page to every commit, and only operators' queries
# and the cleanup would use them.
_TABLES: Final = """
    CREATE TABLE IF NOT EXISTS sessions (
        session TEXT PRIMARY KEY, turns INTEGER NOT NULL, tier TEXT NOT NULL,
        first_seen REAL NOT NULL, last_seen REAL NOT NULL,
        sticky TEXT NOT NULL,  -- {requested model: [tier, until]} as JSON; '': none
        replies TEXT NOT NULL,  -- digests of the last text replies, one a line
        agent TEXT NOT NULL, request_id TEXT NOT NULL,  -- who asked last
        -- The tokens of the scopes `session:ID`, `session:ID:tier:T` and `session:ID:estimated`,
        -- as JSON: {what the scope adds to `session:ID`: tokens}. They may outlive the session, and
        -- a parent of sub-agents has only these: its `last_seen` is 0.
        used TEXT NOT NULL CHECK (json_valid(used)),
        most INTEGER NOT NULL,  -- the largest of these
        touched REAL NOT NULL  -- when tokens were last counted here
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS hours (  -- a scope's tokens of the last 60 minutes
        scope TEXT NOT NULL, minute INTEGER NOT NULL, tokens INTEGER NOT NULL,
        PRIMARY KEY (scope, minute)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS breakers (
        tier TEXT PRIMARY KEY, failures INTEGER NOT NULL, degraded_until REAL NOT NULL,
        cooldown REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS counts (
        hour INTEGER NOT NULL, agent TEXT NOT NULL, tier TEXT NOT NULL,
        counters TEXT NOT NULL CHECK (json_valid(counters)), PRIMARY KEY (hour, agent, tier)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS events (
        number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL,
        session TEXT NOT NULL, body TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS records (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL, at REAL NOT NULL, agent TEXT NOT NULL,
        session TEXT NOT NULL, body BLOB NOT NULL
    );
"""
_OLD: Final = (3, 4)
READABLE: Final = frozenset({0, *_OLD, VERSION})  # 0: a new file


def prepare(connection: sqlite3.Connection) -> int:
    """Make the tables, or bring those of an earlier version into this one, in one transaction.

    Return how many rows made no sense: these stay in ``entries``.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == VERSION:
        return 0
    try:
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES}")
        odd = _move_entries(connection) if version in _OLD else 0
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    return odd


def _move_entries(connection: sqlite3.Connection) -> int:
    for index in ("time", "kind", "session"):
        connection.execute(f"DROP INDEX IF EXISTS events_by_{index}")
    moved, odd = [], 0
    for name, kind, content in connection.execute("SELECT name, kind, content FROM entries"):
        try:
            into, rows_of = _ROWS_OF[kind]
            moved.append((name, kind, into, rows_of(name, orjson.loads(content))))
        except (ValueError, TypeError, LookupError, AttributeError):
            odd += not kind.startswith("odd ")  # so 0.2 named rows that it could not read
    for name, kind, into, rows in sorted(moved, key=lambda one: one[1], reverse=True):
        connection.executemany(f"INSERT INTO {into}", rows)
        connection.execute("DELETE FROM entries WHERE name = ? AND kind = ?", (name, kind))
    return odd


def dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


# How an old row's content becomes rows. Adding 0 raises for anything but a number.
_Rows = list[tuple[Any, ...]]


def _session(name: str, old: dict[str, Any]) -> _Rows:
    sticky = {model: (s["tier"], s["until"] + 0) for model, s in old["sticky"].items()}
    times = old["first_seen"] + 0, old["last_seen"] + 0
    rest = dumps(sticky) if sticky else "", "\n".join(old.get("replies", ()))
    return [(name.removeprefix(SESSION), old["turns"] + 0, old["tier"] + "", *times, *rest)]


def _tokens(name: str, old: dict[str, Any]) -> _Rows:
    used = {scope[len(name) :]: tokens + 0 for scope, tokens in old["used"].items()}
    most = max(used.values(), default=0)
    return [(name.removeprefix(SESSION), dumps(used), most, old["touched"] + 0)]


def _hour(name: str, old: list[tuple[int, int]]) -> _Rows:
    return [(name, minute + 0, tokens + 0) for minute, tokens in old]


def _breaker(name: str, old: dict[str, Any]) -> _Rows:
    return [(name, *(old[field] + 0 for field in ("failures", "degraded_until", "cooldown")))]


def _counters(name: str, old: dict[str, float]) -> _Rows:
    hour, agent, tier = name.split("\t", 2)
    return [(int(hour), agent, tier, dumps({key: number + 0 for key, number in old.items()}))]


# By a row's kind in ``entries``: where it goes, and how it becomes rows there. What is odd raises.
_ROWS_OF: Final[Mapping[str, tuple[str, Callable[[str, Any], _Rows]]]] = {
    "sessions": ("sessions VALUES (?, ?, ?, ?, ?, ?, ?, '', '', '{}', 0, 0)", _session),
    "purses": (  # after the sessions, which may have a row by then
        "sessions VALUES (?, 0, '', 0, 0, '', '', '', '', ?, ?, ?) ON CONFLICT (session) DO UPDATE "
        "SET used = excluded.used, most = excluded.most, touched = excluded.touched",
        _tokens,
    ),
    "hours": ("hours VALUES (?, ?, ?)", _hour),
    "breakers": ("breakers VALUES (?, ?, ?, ?)", _breaker),
    "counts": ("counts VALUES (?, ?, ?, ?)", _counters),
}
