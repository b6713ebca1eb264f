"""The tokens used under some limits, as read from the tables at one moment.

Tokens are counted by scope, in two ways. A rolling scope has a row of ``hours``. All other scopes
count in token accounts, the rows of ``purses``: a session's own scope and the scopes within it
(``session:ID:tier:T``) share the account ``session:ID``, so that they are forgotten together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import orjson

from .rolling_hour import RollingHour
from .schema import dumps
from .store import MOST_TOKENS, Limit

SESSION: Final = "session:"


def account_of(scope: str) -> str:
    """Return the name of a scope's account: ``session:ID:tier:T`` is in ``session:ID``."""
    if not scope.startswith(SESSION):
        return scope
    end = scope.find(":", len(SESSION))
    return scope if end < 0 else scope[:end]


@dataclass(slots=True)
class TokenAccount:
    """The token counts of scopes that are forgotten together."""

    used: dict[str, int] = field(default_factory=dict)  # by what the scope adds to its name
    touched: float = 0.0  # when tokens were last counted here
    is_new: bool = True  # whether it has no row


@lru_cache(64)
def _select(accounts: int, hours: int) -> str:
    """Return one statement for a session's row and those of so many accounts and hours."""
    names, scopes = ", ".join("?" * accounts), ", ".join("?" * hours)
    return (
        "SELECT 0, session, turns, tier, first_seen, last_seen, sticky, replies, "  # noqa: S608
        "agent, request_id FROM sessions WHERE session = ? UNION ALL "
        f"SELECT 1, purse, used, touched, 0, 0, 0, 0, 0, 0 FROM purses WHERE purse IN ({names}) "
        "UNION ALL "
        f"SELECT 2, scope, minutes, 0, 0, 0, 0, 0, 0, 0 FROM hours WHERE scope IN ({scopes})"
    )


class Spending:
    """Reads a session's row and the rows of some limits' scopes, counts in these, writes them."""

    __slots__ = ("_accounts", "_changed", "_connection", "_hours", "_now", "_ttl", "row")

    def __init__(
        self,
        connection: sqlite3.Connection,
        limits: Iterable[Limit],
        now: float,
        ttl: float,
        session: str = "",
    ) -> None:
        """``ttl``: seconds after its last use at which a session or an account starts over."""
        self._connection, self._now, self._ttl = connection, now, ttl
        self._changed: set[str] = set()  # names of accounts, scopes of hours
        self.row: tuple[Any, ...] | None = None  # the session's; None: it is new
        self._accounts: dict[str, TokenAccount | None] = {}  # None: its row is out of date
        self._hours: dict[str, RollingHour] = {}
        accounts = {account_of(scope) for scope, _, rolling in limits if not rolling}
        hours = {scope for scope, _, rolling in limits if rolling}
        sql = _select(len(accounts), len(hours))
        for kind, name, *row in connection.execute(sql, (session, *accounts, *hours)):
            if kind == 0:
                self.row = tuple(row) if now - row[3] <= ttl else None
            elif kind == 1:
                fresh = now - row[1] <= ttl
                self._accounts[name] = (
                    TokenAccount(orjson.loads(row[0]), row[1], False) if fresh else None
                )
            else:
                self._hours[name] = RollingHour(orjson.loads(row[0]))

    def used(self, limit: Limit) -> int:
        """Return the tokens that are used in a limit's scope."""
        scope = limit.scope
        if limit.rolling:
            hour = self._hours.get(scope)
            return hour.total(self._now) if hour is not None else 0
        name = account_of(scope)
        account = self._accounts.get(name)
        return account.used.get(scope[len(name) :], 0) if account is not None else 0

    def add(self, limit: Limit, tokens: int) -> int:
        """Count tokens in a limit's scope; return the scope's tokens before."""
        before = self.used(limit)
        if not tokens:
            return before
        if limit.rolling:
            self._hours.setdefault(limit.scope, RollingHour()).add(tokens, self._now)
            self._changed.add(limit.scope)
            return before
        name = account_of(limit.scope)
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = TokenAccount()
        account.used[limit.scope[len(name) :]] = min(before + tokens, MOST_TOKENS)
        account.touched = max(self._now, account.touched)
        self._changed.add(name)
        return before

    def resets_in(self, limit: Limit, tokens: int) -> float:
        """Return the seconds until ``tokens`` fit, if no one spends from the scope meanwhile."""
        if limit.rolling:
            hour = self._hours.get(limit.scope) or RollingHour()
            return hour.room_in(tokens, limit.most or 0, self._now)
        account = self._accounts.get(account_of(limit.scope))
        return (
            max(0.0, account.touched + self._ttl - self._now) if account is not None else self._ttl
        )

    def save(self) -> int:
        """Write the rows that have changed or are stale; return how many accounts may be new."""
        run, new = self._connection.execute, 0
        for name, account in self._accounts.items():
            if account is None:
                run("DELETE FROM purses WHERE purse = ?", (name,))
            elif name in self._changed:
                new += account.is_new
                row = (name, dumps(account.used), max(account.used.values()), account.touched)
                run("REPLACE INTO purses VALUES (?, ?, ?, ?)", row)
        for scope, hour in self._hours.items():
            if scope in self._changed or hour.has_moved:
                run("REPLACE INTO hours VALUES (?, ?)", (scope, dumps(hour.buckets())))
        return new
