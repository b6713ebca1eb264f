"""The rules by which exchanges change the tables of a SQLite database, and what is read of them.

Nothing is kept in memory: each method reads the rows that it needs and writes those that it
changes. The caller begins and ends the transactions. All methods block and raise ``sqlite3.Error``.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from .hourly import Counts, HourKey, add, hour_of
from .rolling_hour import RollingHour
from .schema import dumps
from .spending import SESSION, Spending
from .store import (
    ESTIMATED,
    BreakerState,
    Change,
    EventQuery,
    KeptRecord,
    Limit,
    Sessions,
    SessionState,
    Sizes,
    Sticky,
)

SPARE_ACCOUNTS = (
    1_000  # token accounts without a session: of parents, of sessions that were forgotten
)
SHARE = 100  # one of so many rows beyond a bound is forgotten at once, because finding them costs
STEP = 200  # rows of a kind that one step of the housekeeping forgets

_PUT_SESSION: Final = (
    "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session) DO UPDATE SET "
    "turns = excluded.turns, tier = excluded.tier, first_seen = excluded.first_seen, "
    "last_seen = excluded.last_seen, sticky = excluded.sticky, replies = excluded.replies, "
    "agent = excluded.agent, request_id = excluded.request_id"
)
_LISTED: Final = "FROM sessions WHERE last_seen >= ?1 AND (?2 IS NULL OR agent = ?2)"
# The API key's part of a session's hash, which may be empty, in sessions' and purses' names.
_KEY: Final = {"sessions": "substr(session, 33)", "purses": "substr(purse, 41)"}
_FORGET_SESSIONS: Final = (
    "DELETE FROM sessions WHERE session IN (SELECT session FROM sessions "  # noqa: S608
    f"WHERE ?1 IS NULL OR {_KEY['sessions']} = ?1 ORDER BY last_seen LIMIT min(?2, ?3))"
)
_FORGET_ACCOUNTS: Final = (
    "DELETE FROM purses WHERE purse IN (SELECT purse FROM "  # noqa: S608
    f"(SELECT purse, most FROM purses WHERE ?1 IS NULL OR {_KEY['purses']} = ?1 "
    "ORDER BY touched LIMIT ?2) ORDER BY most LIMIT ?3)"
)
# SQL conditions on an event, by the EventQuery field that asks for them.
_CONDITIONS: Final = {
    "after": "number > :after",
    "before": "number < :before",
    "since": "time >= :since",
    "kind": "kind = :kind",
    "session": "session >= :session AND session < :session || char(1114111)",
    "request_id": "CASE WHEN json_valid(body) THEN json_extract(body, '$.request_id') END "
    "= :request_id",
    "agent": "CASE WHEN json_valid(body) THEN json_extract(body, '$.agent') END = :agent",
}
# What the housekeeping forgets, oldest first; only old events leave gaps in the numbers.
_OLD_EVENTS: Final = (
    "DELETE FROM events WHERE number IN (SELECT number FROM events "
    "WHERE time < ? OR number <= (SELECT max(number) FROM events) - ? LIMIT ?)"
)
_OLD_RECORDS: Final = (
    "DELETE FROM records WHERE number IN (SELECT number FROM (SELECT number, sum(length(body)) "
    "OVER (ORDER BY number DESC) AS bytes, row_number() OVER (ORDER BY number DESC) AS place "
    "FROM records) WHERE bytes > ? OR place > ? ORDER BY number LIMIT ?)"
)


class Database:
    """The tables behind one connection."""

    def __init__(self, connection: sqlite3.Connection, sizes: Sizes) -> None:
        self.connection = connection
        self._run = connection.execute
        self._sizes = sizes
        self._ttl = sizes.session_ttl
        # By table: how many rows may be added before they are counted again.
        self._room = {"sessions": 0, "purses": 0}

    # Sessions

    def load(
        self, session: str, now: float, limits: Sequence[Limit], reserved: int
    ) -> SessionState:
        """Return a session as ``Store.load`` does; ``reserved``: what is set aside in its scope."""
        scope = SESSION + session
        own, estimated = Limit(scope, None, False), Limit(scope + ESTIMATED, None, False)
        spending = Spending(self.connection, (own, *limits), now, self._ttl, session)
        counts = {limit.scope: spending.used(limit) for limit in limits}
        turns, tier, first_seen, last_seen, sticky, replies, *asked = spending.row or _fresh(now)
        tokens = (spending.used(own), reserved, spending.used(estimated))
        return SessionState(  # all its fields, in their order: by name it takes twice as long
            session,
            *tokens,
            counts,
            turns,
            tier,
            _lasting(_sticky(sticky), now) if sticky else {},
            first_seen,
            last_seen,
            tuple(replies.split("\n")) if replies else (),
            *asked,
        )

    def sessions(self, now: float, offset: int, limit: int, agent: str | None) -> Sessions:
        """Return sessions as ``Store.sessions`` does, without what is set aside."""
        sql = f"SELECT session {_LISTED} ORDER BY last_seen DESC LIMIT ?3 OFFSET ?4"
        sessions = Sessions()
        for (session,) in self._run(sql, (now - self._ttl, agent, limit, offset)).fetchall():
            try:
                sessions.append(self.load(session, now, (), 0))
            except (ValueError, TypeError, LookupError):
                sessions.unreadable += 1
        return sessions

    def count_sessions(self, now: float, agent: str | None) -> int:
        sql = f"SELECT count(*) {_LISTED}"
        return int(self._run(sql, (now - self._ttl, agent)).fetchone()[0])

    def delete(self, session: str) -> bool:
        """Forget a session as ``Store.delete`` does."""
        self._run("DELETE FROM purses WHERE purse = ?", (SESSION + session,))
        return self._run("DELETE FROM sessions WHERE session = ?", (session,)).rowcount > 0

    # Changes

    def write(self, change: Change, now: float) -> dict[str, int]:
        """Apply a change as ``Store.write`` does; its ticket is the caller's affair.

        Raises TypeError, ValueError for what no row can hold; the caller then undoes the rest.
        """
        amounts = change.settlement.amounts if change.settlement is not None else {}
        tokens_before = {}
        if amounts or change.session:
            spending = Spending(self.connection, amounts, now, self._ttl, change.session)
            tokens_before = {limit.scope: spending.add(limit, n) for limit, n in amounts.items()}
            self._save(spending)
            if change.session:
                self._add_to_session(change, now, spending.row)
        for tier, b in change.breakers.items():
            row = (tier, b.failures, b.degraded_until, b.cooldown)
            self._run("REPLACE INTO breakers VALUES (?, ?, ?, ?)", row)
        for hour_key, counts in change.counts.items():
            self._count(hour_key, counts)
        for event in change.events:
            values = (event["time"], event["kind"], event["session"], dumps(event))
            sql = "INSERT INTO events (time, kind, session, body) VALUES (?, ?, ?, ?)"
            self._run(sql, values)
        for record in change.records:
            sql = "INSERT INTO records (id, at, agent, session, body) VALUES (?, ?, ?, ?, ?)"
            self._run(sql, record)
        return tokens_before

    def _save(self, spending: Spending) -> None:
        most = self._sizes.max_sessions + SPARE_ACCOUNTS
        if (new := spending.save()) and (over := self._over("purses", most, new)):
            key, older_half = self._busiest_key("purses")
            # So no client resets a used-up budget by naming many sessions: it would have to
            # spend as much in each of them.
            self._run(_FORGET_ACCOUNTS, (key, older_half, over))

    def _add_to_session(self, change: Change, now: float, row: tuple[Any, ...] | None) -> None:
        turns, tier, first_seen, last_seen, sticky, replies, *asked = row or _fresh(now)
        if change.sticky:
            lasting = _lasting({**_sticky(sticky), **change.sticky}, now)
            sticky = dumps({m: (s.tier, s.until) for m, s in lasting.items()}) if lasting else ""
        if change.reply:
            replies = "\n".join([*replies.split("\n"), change.reply][-change.replies_kept :])
        values = (
            change.session,
            turns + change.turns,
            change.tier or tier,
            min(now, first_seen),
            max(now, last_seen),
            sticky,
            replies.lstrip("\n"),
            *((change.agent, change.request_id) if change.agent else asked),
        )
        self._run(_PUT_SESSION, values)
        if row is None and (over := self._over("sessions", self._sizes.max_sessions, 1)):
            key, older_half = self._busiest_key("sessions")
            self._run(_FORGET_SESSIONS, (key, older_half, over))

    def _count(self, key: HourKey, counts: Counts) -> None:
        sql = "SELECT counters FROM counts WHERE hour = ? AND agent = ? AND tier = ?"
        row = self._run(sql, key).fetchone()
        counters = add(orjson.loads(row[0]) if row is not None else {}, counts)
        self._run("REPLACE INTO counts VALUES (?, ?, ?, ?)", (*key, dumps(counters)))

    # Bounds

    def _over(self, table: str, most: int, added: int) -> int:
        """Return how many rows of a table to forget now that some were added; 0 if it has room."""
        self._room[table] -= added
        if self._room[table] >= 0:
            return 0
        number: int = self._run(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
        over = number - most + most // SHARE if number > most else 0
        self._room[table] = most - number + over
        return over

    def _busiest_key(self, table: str) -> tuple[str | None, int]:
        """Return the API key's part of most names, and half their number: those to forget from.

        So no key pushes out another's rows. If no key has two, return None and the number of all.
        """
        key = _KEY[table]
        sql = f"SELECT {key}, count(*) FROM {table} GROUP BY 1 ORDER BY 2 DESC LIMIT 1"  # noqa: S608
        name, number = self._run(sql).fetchone()
        return (name, (number + 1) // 2) if number > 1 else (None, self._sizes.max_sessions)

    def keep_house(self, now: float) -> bool:
        """Forget some rows that are too old or too many; return whether there may be more."""
        sizes, idle, oldest = self._sizes, now - self._ttl, now - self._sizes.events_ttl
        for scope, minutes in self._run("SELECT scope, minutes FROM hours").fetchall():
            if not RollingHour(orjson.loads(minutes)).total(now):
                self._run("DELETE FROM hours WHERE scope = ?", (scope,))
        self._run("DELETE FROM counts WHERE hour < ?", (hour_of(oldest),))
        self._run("PRAGMA incremental_vacuum(64)").fetchall()
        forgotten = [
            self._run(sql, values).rowcount
            for sql, values in (
                (_idle("sessions", "session", "last_seen"), (idle, STEP)),
                (_idle("purses", "purse", "touched"), (idle, STEP)),
                (_OLD_EVENTS, (oldest, sizes.max_events, STEP)),
                (_OLD_RECORDS, (sizes.max_record_bytes, sizes.max_records, STEP)),
            )
        ]
        return STEP in forgotten

    def sync(self) -> None:
        """Put commits on the disk, so that a power cut can't lose them."""
        self._run("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    # What operators ask

    def breakers(self) -> dict[str, BreakerState]:
        rows = self._run("SELECT tier, failures, degraded_until, cooldown FROM breakers")
        return {tier: BreakerState(*state) for tier, *state in rows}

    def counts(self, first: int, last: int) -> dict[HourKey, Counts]:
        """Return the hours' counters as ``Store.counts`` does."""
        sql = "SELECT hour, agent, tier, counters FROM counts WHERE hour BETWEEN ? AND ?"
        return {HourKey(*k): orjson.loads(c) for *k, c in self._run(sql, (first, last))}

    def events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        """Return events as ``Store.events`` does."""
        values, conditions = _conditions(query)
        newest_first = query.after is None
        sql = (
            f"SELECT number, body FROM events WHERE {conditions} "  # noqa: S608
            f"ORDER BY number {'DESC' if newest_first else 'ASC'} LIMIT :most"
        )
        rows = self._run(sql, {**values, "most": max(0, query.limit)}).fetchall()
        events: list[tuple[int, Mapping[str, Any]]] = []
        for number, body in rows[::-1] if newest_first else rows:
            with contextlib.suppress(orjson.JSONDecodeError):
                events.append((number, orjson.loads(body)))
        return events

    def count_events(self, query: EventQuery) -> int:
        """Count events as ``Store.count_events`` does."""
        values, conditions = _conditions(query)
        sql = f"SELECT count(*) FROM events WHERE {conditions}"  # noqa: S608
        return int(self._run(sql, values).fetchone()[0])

    def record(self, request_id: str | None, agent: str | None) -> KeptRecord | None:
        """Return a record as ``Store.record`` does."""
        column, value = ("agent", agent) if request_id is None else ("id", request_id)
        where = f"WHERE {column} = ?1" if value is not None else "WHERE ?1 IS NULL"
        sql = f"SELECT id, at, agent, session, body FROM records {where} "  # noqa: S608
        row = self._run(f"{sql} ORDER BY number DESC LIMIT 1", (value,)).fetchone()
        return KeptRecord(*row) if row is not None else None


def _fresh(now: float) -> tuple[Any, ...]:
    """Return the row of a session without one, but for its name."""
    return 0, "", now, now, "", "", "", ""


def _sticky(text: str) -> dict[str, Sticky]:
    return {m: Sticky(tier, until) for m, (tier, until) in orjson.loads(text or "{}").items()}


def _lasting(sticky: Mapping[str, Sticky], now: float) -> dict[str, Sticky]:
    return {model: entry for model, entry in sticky.items() if entry.until > now}


def _conditions(query: EventQuery) -> tuple[dict[str, Any], str]:
    """Return a query's values by name, and its conditions in SQL."""
    values = {name: getattr(query, name) for name in _CONDITIONS}
    return values, " AND ".join(_CONDITIONS[name] for name in values if values[name] is not None)


def _idle(table: str, name: str, used: str) -> str:
    select = f"SELECT {name} FROM {table} WHERE {used} < ? LIMIT ?"  # noqa: S608
    return f"DELETE FROM {table} WHERE {name} IN ({select})"  # noqa: S608
