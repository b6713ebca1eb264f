"""The tables of the SQLite file, and how files of earlier versions become such a one.

Schema 5 has no agent in a session's row. Version 0.1 wrote schema 3 and version 0.2 schema 4: one
table ``entries`` with a row for each session, token account (``purses``), rolling hour, breaker and
row of the hours' counters, as name, kind and JSON.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

VERSION: Final = 6  # raise it with each change of the tables
READABLE: Final = (0, 3, 4, 5, VERSION)  # 0: a new file

_EVENTS: Final = """
    CREATE TABLE IF NOT EXISTS events (
        number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL,
        session TEXT NOT NULL, body TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS events_by_time ON events (time);
    CREATE INDEX IF NOT EXISTS events_by_kind ON events (kind);
    CREATE INDEX IF NOT EXISTS events_by_session ON events (session);
    CREATE TABLE IF NOT EXISTS records (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL, at REAL NOT NULL, agent TEXT NOT NULL,
        session TEXT NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS records_by_id ON records (id);
    CREATE INDEX IF NOT EXISTS records_by_agent ON records (agent);
"""
_FROM_5: Final = """
    ALTER TABLE sessions ADD COLUMN agent TEXT NOT NULL DEFAULT '';
    ALTER TABLE sessions ADD COLUMN request_id TEXT NOT NULL DEFAULT '';
"""
# A session's row and its budget's are two, because a budget outlives its session.
_TABLES: Final = """
    CREATE TABLE sessions (
        session TEXT PRIMARY KEY, turns INTEGER NOT NULL, tier TEXT NOT NULL,
        first_seen REAL NOT NULL, last_seen REAL NOT NULL,
        sticky TEXT NOT NULL,  -- {requested model: [tier, until]} as JSON; '': none
        replies TEXT NOT NULL,  -- digests of the last text replies, one a line
        agent TEXT NOT NULL DEFAULT '', request_id TEXT NOT NULL DEFAULT ''  -- who asked last
    ) WITHOUT ROWID;
    CREATE INDEX sessions_by_use ON sessions (last_seen);
    -- Token accounts. One counts the tokens of scopes that are forgotten together: `session:ID` has
    -- those of `session:ID`, `session:ID:tier:T` and `session:ID:estimated`.
    CREATE TABLE purses (
        purse TEXT PRIMARY KEY,
        used TEXT NOT NULL CHECK (json_valid(used)),  -- {what the scope adds to the name: tokens}
        most INTEGER NOT NULL,  -- the largest of these
        touched REAL NOT NULL  -- when tokens were last counted here
    ) WITHOUT ROWID;
    CREATE TABLE hours (  -- a scope's tokens of the last 60 minutes
        scope TEXT PRIMARY KEY, minutes TEXT NOT NULL CHECK (json_valid(minutes))
    ) WITHOUT ROWID;
    CREATE TABLE breakers (
        tier TEXT PRIMARY KEY, failures INTEGER NOT NULL, degraded_until REAL NOT NULL,
        cooldown REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE counts (
        hour INTEGER NOT NULL, agent TEXT NOT NULL, tier TEXT NOT NULL,
        counters TEXT NOT NULL CHECK (json_valid(counters)), PRIMARY KEY (hour, agent, tier)
    ) WITHOUT ROWID;
"""


def prepare(connection: sqlite3.Connection) -> int:
    """Make the tables, or bring those of an earlier version into this one, in one transaction.

    Return how many rows made no sense: these stay in ``entries``.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == VERSION:
        return 0
    tables = _FROM_5 if version == 5 else _EVENTS + _TABLES
    try:
        connection.executescript(f"BEGIN IMMEDIATE; {tables}")
        odd = _move_entries(connection) if version in (3, 4) else 0
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    return odd


def _move_entries(connection: sqlite3.Connection) -> int:
    moved, odd = [], 0
    for name, kind, content in connection.execute("SELECT name, kind, content FROM entries"):
        try:
            moved.append((_INTO[kind], (*_ROW_OF[kind](name, orjson.loads(content)),)))
        except (ValueError, TypeError, LookupError, AttributeError):
            odd += not kind.startswith("odd ")  # so 0.2 named rows that it could not read
            continue
        connection.execute("DELETE FROM entries WHERE name = ? AND kind = ?", (name, kind))
    for statement, row in moved:
        connection.execute(statement, row)
    return odd


def _session(name: str, content: dict[str, Any]) -> Iterable[Any]:
    sticky = {model: (s["tier"], s["until"] + 0) for model, s in content["sticky"].items()}
    return (
        name.removeprefix("session:"),
        content["turns"] + 0,
        content["tier"] + "",
        content["first_seen"] + 0,
        content["last_seen"] + 0,
        dumps(sticky) if sticky else "",
        "\n".join(content.get("replies", ())),
    )


def _account(name: str, content: dict[str, Any]) -> Iterable[Any]:
    used = {scope[len(name) :]: tokens + 0 for scope, tokens in content["used"].items()}
    return name, dumps(used), max(used.values(), default=0), content["touched"] + 0


def _hour(name: str, content: list[tuple[int, int]]) -> Iterable[Any]:
    return name, dumps([(minute + 0, tokens + 0) for minute, tokens in content])


def _breaker(name: str, content: dict[str, Any]) -> Iterable[Any]:
    return name, *(content[field] + 0 for field in ("failures", "degraded_until", "cooldown"))


def _counters(name: str, content: dict[str, float]) -> Iterable[Any]:
    hour, agent, tier = name.split("\t", 2)
    return int(hour), agent, tier, dumps({key: number + 0 for key, number in content.items()})


def dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


# By a row's kind in ``entries``: how it becomes a row now. A content that is odd raises.
_ROW_OF: Final[Mapping[str, Callable[[str, Any], Iterable[Any]]]] = {
    "sessions": _session,
    "purses": _account,
    "hours": _hour,
    "breakers": _breaker,
    "counts": _counters,
}
_INTO: Final = {
    "sessions": "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, '', '')",
    "purses": "INSERT INTO purses VALUES (?, ?, ?, ?)",
    "hours": "INSERT INTO hours VALUES (?, ?)",
    "breakers": "INSERT INTO breakers VALUES (?, ?, ?, ?)",
    "counts": "INSERT INTO counts VALUES (?, ?, ?, ?)",
}
