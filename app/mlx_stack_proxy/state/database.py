"""The SQL of each change and each query.

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
from .schema import dumps
from .store import (
    ESTIMATED,
    LAG,
    MAX_TOKENS,
    MINUTE,
    MINUTES,
    SESSION,
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

STEP = 200  # rows of a kind that one step of the housekeeping forgets

_ROW: Final = (
    "SELECT turns, tier, first_seen, last_seen, sticky, replies, agent, request_id, used, touched "
    "FROM sessions WHERE session = ?"
)
_PUT_ROW: Final = "REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_NO_SESSION: Final = (0, "", 0.0, 0.0, "", "", "", "")  # in place of a row's first eight
# A minute in the future was counted by a clock that has been set back since.
_HOUR: Final = (
    "SELECT coalesce(sum(tokens) FILTER (WHERE minute > ?2 - 60), 0), "
    "coalesce(min(minute), ?2), coalesce(max(minute), ?2) FROM hours WHERE scope = ?1"
)
_ADD_TO_HOUR: Final = (
    "INSERT INTO hours VALUES (?, ?, ?) "
    "ON CONFLICT (scope, minute) DO UPDATE SET tokens = tokens + excluded.tokens"
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
# What the housekeeping deletes, oldest first; only deleted events leave gaps in the numbers.
_IDLE: Final = (
    "DELETE FROM sessions WHERE session IN (SELECT session FROM sessions "
    "WHERE last_seen < ?1 AND touched < ?1 LIMIT ?2)"
)
_OLD_EVENTS: Final = (
    "DELETE FROM events WHERE number IN (SELECT number FROM events ORDER BY number LIMIT ?3) "
    "AND (time < ?1 OR number <= (SELECT max(number) FROM events) - ?2)"
)
_OLD_RECORDS: Final = (
    "DELETE FROM records WHERE number IN (SELECT number FROM (SELECT number, sum(length(body)) "
    "OVER (ORDER BY number DESC) AS bytes, row_number() OVER (ORDER BY number DESC) AS place "
    "FROM records) WHERE bytes > ? OR place > ? ORDER BY number LIMIT ?)"
)

_Row = list[Any]  # as `_ROW` reads it, but for the tokens: a dict


class Database:
    """The tables behind one connection."""

    def __init__(self, connection: sqlite3.Connection, sizes: Sizes) -> None:
        self.connection = connection
        self._run = connection.execute
        self._sizes = sizes
        self._ttl = sizes.session_ttl

    # Sessions and their tokens

    def load(
        self, session: str, now: float, limits: Sequence[Limit], reserved: int
    ) -> SessionState:
        """Return a session as ``Store.load`` does; ``reserved``: what is set aside in its scope."""
        row = self._row(session, now)
        turns, tier, first_seen, last_seen, sticky, replies, agent, request_id, used, _ = row
        rows = {session: row}
        return SessionState(  # positional: keywords take twice as long
            session,
            used.get("", 0),
            reserved,
            used.get(ESTIMATED, 0),
            {limit.scope: self._used(limit, now, rows) for limit in limits},
            turns,
            tier,
            _lasting(_sticky(sticky), now) if sticky else {},
            first_seen or now,
            last_seen or now,
            tuple(replies.split("\n")) if replies else (),
            agent,
            request_id,
        )

    def used(self, limits: Sequence[Limit], now: float) -> dict[str, int]:
        """Return the used tokens of some limits, by scope."""
        rows: dict[str, _Row] = {}
        return {limit.scope: self._used(limit, now, rows) for limit in limits}

    def resets_in(self, limit: Limit, tokens: int, now: float) -> float:
        """Return the seconds until ``tokens`` fit, if nothing else uses the scope until then."""
        if not limit.rolling:
            row = self._row(_split(limit.scope)[0], now)
            return float(row[9]) + self._ttl - now if row[8] else self._ttl
        minute = int(now // MINUTE)
        excess = self._hour(limit.scope, minute)[0] + tokens - (limit.most or 0)
        select = "SELECT minute, tokens FROM hours WHERE scope = ? AND minute > ? ORDER BY minute"
        for spent_at, spent in self._run(select, (limit.scope, minute - MINUTES)):
            excess -= spent
            if excess <= 0:
                return float((spent_at + MINUTES) * MINUTE - now)
        return MINUTES * MINUTE

    def delete(self, session: str) -> bool:
        """Forget a session as ``Store.delete`` does."""
        return self._run("DELETE FROM sessions WHERE session = ?", (session,)).rowcount > 0

    def sessions(self, now: float, offset: int, limit: int, agent: str | None) -> Sessions:
        """Return sessions as ``Store.sessions`` does, without what is set aside."""
        listed = "FROM sessions WHERE last_seen >= ?1 AND (?2 IS NULL OR agent = ?2)"
        sql = f"SELECT session {listed} ORDER BY last_seen DESC LIMIT ?3 OFFSET ?4"
        oldest, sessions = now - self._ttl, Sessions()
        (sessions.number,) = self._run(f"SELECT count(*) {listed}", (oldest, agent)).fetchone()
        for (session,) in self._run(sql, (oldest, agent, limit, offset)).fetchall():
            try:
                sessions.append(self.load(session, now, (), 0))
            except (ValueError, TypeError, LookupError):
                sessions.unreadable += 1
        return sessions

    def _row(self, name: str, now: float) -> _Row:
        """Return a row's current value, without data that has been idle for too long."""
        found = self._run(_ROW, (name,)).fetchone()
        if found is None:
            return [*_NO_SESSION, {}, 0.0]
        row, oldest = list(found), now - self._ttl
        if row[3] < oldest:
            row[:8] = _NO_SESSION
        row[8] = orjson.loads(row[8]) if row[9] >= oldest else {}
        return row

    def _used(self, limit: Limit, now: float, rows: dict[str, _Row]) -> int:
        """Return a limit's used tokens. ``rows``: a cache of read rows, by name."""
        if limit.rolling:
            return self._hour(limit.scope, int(now // MINUTE))[0]
        name, part = _split(limit.scope)
        if name not in rows:
            rows[name] = self._row(name, now)
        used: int = rows[name][8].get(part, 0)
        return used

    def _hour(self, scope: str, minute: int) -> tuple[int, int, int]:
        """Return the tokens of the hour that ends now, and the scope's first and last minute."""
        found: tuple[int, int, int] = self._run(_HOUR, (scope, minute)).fetchone()
        return found

    # Changes

    def write(self, change: Change, now: float) -> dict[str, int]:
        """Apply a change as ``Store.write`` does; its ticket is the caller's affair.

        Raises TypeError, ValueError for what no row can hold; the caller then undoes the rest.
        """
        settlement, run = change.settlement, self._run
        rows: dict[str, _Row] = {}
        changed: set[str] = set()
        tokens_before: dict[str, int] = {}
        if settlement is not None:
            tokens_before = self._spend(settlement.amounts, now, rows, changed)
        if name := change.session:
            rows[name] = _with(change, rows.get(name) or self._row(name, now), now)
            changed.add(name)
        for name in changed:
            *session, used, touched = rows[name]
            most = max(used.values(), default=0)
            run(_PUT_ROW, (name, *session, dumps(used), most, touched))
        for tier, b in change.breakers.items():
            row = (tier, b.failures, b.degraded_until, b.cooldown)
            run("REPLACE INTO breakers VALUES (?, ?, ?, ?)", row)
        for key, counts in change.counts.items():
            self._count(key, counts)
        for event in change.events:
            run("INSERT INTO events (time, kind, session, body) VALUES (?, ?, ?, ?)", event)
        for record in change.records:
            sql = "INSERT INTO records (id, at, agent, session, body) VALUES (?, ?, ?, ?, ?)"
            run(sql, record)
        return tokens_before

    def _spend(
        self,
        amounts: Mapping[Limit, int],
        now: float,
        rows: dict[str, _Row],
        changed: set[str],
    ) -> dict[str, int]:
        """Count tokens in each limit's scope; return the scopes' tokens before.

        ``rows``, ``changed``: get the rows of sessions that were read, and which have changed.
        """
        tokens_before: dict[str, int] = {}
        minute = int(now // MINUTE)
        for limit, amount in amounts.items():
            scope = limit.scope
            if limit.rolling:
                used, first, last = self._hour(scope, minute)
                if first <= minute - MINUTES or last > minute + LAG:
                    self._tidy_hour(scope, minute)
            else:
                used = self._used(limit, now, rows)
            tokens_before[scope] = used
            tokens = min(amount, MAX_TOKENS - used)
            if tokens and limit.rolling:
                self._run(_ADD_TO_HOUR, (scope, minute, tokens))
            elif tokens:
                name, part = _split(scope)
                row = rows[name]
                row[8][part], row[9] = used + tokens, max(now, row[9])
                changed.add(name)
        return tokens_before

    def _count(self, key: HourKey, counts: Counts) -> None:
        sql = "SELECT counters FROM counts WHERE hour = ? AND agent = ? AND tier = ?"
        row = self._run(sql, key).fetchone()
        counters = add(orjson.loads(row[0]) if row is not None else {}, counts)
        self._run("REPLACE INTO counts VALUES (?, ?, ?, ?)", (*key, dumps(counters)))

    # Housekeeping

    def keep_house(self, now: float) -> bool:
        """Delete some rows that are too old or too many; return whether there may be more."""
        sizes, idle, oldest = self._sizes, now - self._ttl, now - self._sizes.events_ttl
        minute = int(now // MINUTE)
        outside = "SELECT DISTINCT scope FROM hours WHERE minute NOT BETWEEN ? AND ?"
        scopes = self._run(outside, (minute - MINUTES + 1, minute + LAG)).fetchall()
        for (scope,) in scopes:
            self._tidy_hour(scope, minute)
        self._run("DELETE FROM counts WHERE hour < ?", (hour_of(oldest),))
        self._run("PRAGMA incremental_vacuum(64)").fetchall()
        # A deleted session's tokens stay as long as they are fresh. Of such rows
        # those with few tokens go first, so no client resets a used-up budget by naming many
        # sessions: it would have to spend as much in each of them.
        listed, rest = "last_seen >= ?4", "last_seen < ?4"
        lists_less = "UPDATE sessions SET last_seen = 0"
        over = self._forget(lists_less, listed, "last_seen", "last_seen", idle)
        over |= self._forget("DELETE FROM sessions", rest, "touched", "most", idle)
        forgotten = [
            self._run(sql, values).rowcount
            for sql, values in (
                (_IDLE, (idle, STEP)),
                (_OLD_EVENTS, (oldest, sizes.max_events, STEP)),
                (_OLD_RECORDS, (sizes.max_record_bytes, sizes.max_records, STEP)),
            )
        ]
        return over or STEP in forgotten

    def _tidy_hour(self, scope: str, minute: int) -> None:
        """Delete a scope's expired minutes; future minutes count as spent now."""
        ahead = "SELECT sum(tokens) FROM hours WHERE scope = ? AND minute > ?"
        if tokens := self._run(ahead, (scope, minute + LAG)).fetchone()[0]:
            self._run(_ADD_TO_HOUR, (scope, minute, tokens))
        sql = "DELETE FROM hours WHERE scope = ? AND minute NOT BETWEEN ? AND ?"
        self._run(sql, (scope, minute - MINUTES + 1, minute + LAG))

    def _forget(self, forget: str, where: str, used: str, by: str, idle: float) -> bool:
        """Forget some rows beyond ``max_sessions``; return whether there are more to forget.

        They come from the older half of the API key with the most rows, so that no key pushes out
        another's rows; if no key has two rows, from all rows. ``used``, ``by``: the columns that
        order all rows, and the older half, of which the first half may go.
        """
        key = "substr(session, 33)"  # the API key's part of a session's hash, which may be empty
        sql = f"SELECT {key}, count(*) FROM sessions WHERE {where} GROUP BY 1 ORDER BY 2 DESC"  # noqa: S608
        keys = self._run(sql, (None, None, None, idle)).fetchall()
        number: int = sum(rows for _, rows in keys)
        over = min(number - self._sizes.max_sessions, STEP)
        if over <= 0:
            return False
        busiest, rows = keys[0]
        busiest, half = (busiest, (rows + 1) // 2) if rows > 1 else (None, number)
        over = min(over, max(1, half // 2))
        self._run(
            f"{forget} WHERE session IN (SELECT session FROM (SELECT session, {by} FROM sessions "  # noqa: S608
            f"WHERE {where} AND (?1 IS NULL OR {key} = ?1) ORDER BY {used} LIMIT ?2) "
            f"ORDER BY {by} LIMIT ?3)",
            (busiest, half, over, idle),
        )
        return number - over > self._sizes.max_sessions

    def sync(self) -> None:
        """Sync commits to the disk, so that a power cut can't lose them."""
        self._run("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    # Operators' queries

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

    def record(self, request_id: str | None = None, agent: str | None = None) -> KeptRecord | None:
        """Return a record as ``Store.record`` does."""
        column, value = ("agent", agent) if request_id is None else ("id", request_id)
        where = f"WHERE {column} = ?1" if value is not None else "WHERE ?1 IS NULL"
        sql = f"SELECT id, at, agent, session, body FROM records {where} "  # noqa: S608
        row = self._run(f"{sql} ORDER BY number DESC LIMIT 1", (value,)).fetchone()
        return KeptRecord(*row) if row is not None else None


def _split(scope: str) -> tuple[str, str]:
    """Return the row that counts a scope, and the scope's name there."""
    if not scope.startswith(SESSION):
        return scope, ""
    session, _, part = scope[len(SESSION) :].partition(":")
    return session, part and f":{part}"


def _with(change: Change, row: _Row, now: float) -> _Row:
    """Return a session's row after a change; its tokens stay."""
    turns, tier, first_seen, last_seen, sticky, replies, agent, request_id, *tokens = row
    if change.sticky:
        lasting = _lasting({**_sticky(sticky), **change.sticky}, now)
        sticky = dumps({m: (s.tier, s.until) for m, s in lasting.items()})
    if change.reply:
        replies = "\n".join([*replies.split("\n"), change.reply][-change.replies_kept :])
    if change.agent:
        agent, request_id = change.agent, change.request_id
    return [
        turns + change.turns,
        change.tier or tier,
        min(now, first_seen or now),
        max(now, last_seen),
        sticky,
        replies.lstrip("\n"),
        agent,
        request_id,
        *tokens,
    ]


def _sticky(text: str) -> dict[str, Sticky]:
    return {m: Sticky(tier, until) for m, (tier, until) in orjson.loads(text or "{}").items()}


def _lasting(sticky: Mapping[str, Sticky], now: float) -> dict[str, Sticky]:
    return {model: entry for model, entry in sticky.items() if entry.until > now}


def _conditions(query: EventQuery) -> tuple[dict[str, Any], str]:
    """Return a query's values by name, and its conditions in SQL."""
    values = {name: getattr(query, name) for name in _CONDITIONS}
    return values, " AND ".join(_CONDITIONS[name] for name in values if values[name] is not None)
