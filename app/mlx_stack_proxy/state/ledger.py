"""Sessions, token counts and reservations of one process, in memory; no I/O, times passed in.

Tokens are counted by scope, in two ways. A rolling scope has a ``RollingHour``. All other scopes
count in purses: a session's own scope and the scopes within it (``session:ID:tier:T``) share the
purse ``session:ID``, so that they are forgotten together. A reservation holds tokens in all its
scopes under one ticket, until it is settled or expires; it dies with the process. Every
table notes which of its rows have changed, and ``image.py`` has those written to the state file.
The breakers' states and the hours' counters are two more tables.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice, takewhile
from typing import Any, TypeVar

from ..engine.session_id import busiest_key
from .hourly import Agents, Counts, HourKey, add
from .rolling_hour import RollingHour
from .store import (
    ESTIMATED,
    MOST_TOKENS,
    BreakerState,
    Change,
    Limit,
    Refused,
    Reserved,
    SessionState,
    Sizes,
    Sticky,
)

SPARE_PURSES = 1_000  # purses without a session: of parents, of sessions that crashed
SHARE = 100  # one of so many rows beyond a bound is forgotten at once, as finding them costs
STEP = 8  # idle sessions that one write forgets, so that no write pays for a whole night

_SESSION = "session:"
_NOTHING: dict[str, int] = {}  # never changed
Name = TypeVar("Name", bound=Hashable)
Row = TypeVar("Row")


class Table(OrderedDict[Name, Row]):
    """An ordered dict that notes the names of rows that were set or deleted.

    A caller who changes a row in place sets it again, so that the table notes it.
    """

    def __init__(self) -> None:
        # Names to be written, the first changed first; whoever writes a row deletes its name here.
        self.changed: dict[Name, None] = {}
        super().__init__()

    def __setitem__(self, name: Name, row: Row) -> None:
        super().__setitem__(name, row)
        self.changed[name] = None

    def __delitem__(self, name: Name) -> None:
        super().__delitem__(name)
        self.changed[name] = None

    def all_changed(self) -> None:
        """Note every row as changed: the file is new and has none."""
        self.changed.update(dict.fromkeys(self))

    def restore(self, rows: Iterable[tuple[Name, Row]]) -> None:
        """Replace all rows by those read from the file, and note none as changed."""
        self.clear()
        self.update(rows)
        self.changed.clear()


def purse_of(scope: str) -> str:
    """Return the name of a scope's purse: ``session:ID:tier:T`` is in ``session:ID``."""
    if not scope.startswith(_SESSION):
        return scope
    end = scope.find(":", len(_SESSION))
    return scope if end < 0 else scope[:end]


@dataclass(slots=True)
class Purse:
    """The token counts of scopes that are forgotten together."""

    used: dict[str, int] = field(default_factory=dict)  # tokens by scope
    touched: float = 0.0  # when tokens were last counted here


class Ledger:
    """One process's counts. Its size is bounded: it forgets the least recently used rows first."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._ttl = sizes.session_ttl
        self.sessions: Table[str, SessionState] = Table()  # the least recently used first
        self.purses: Table[str, Purse] = Table()  # by name, the least recently used first
        self.hours: Table[str, RollingHour] = Table()  # by scope
        self.breakers: Table[str, BreakerState] = Table()  # by tier
        self.counts: Table[HourKey, dict[str, float]] = Table()  # the oldest hour first
        self._agents = Agents()
        self.tables: dict[str, Table[Any, Any]] = {  # all that outlives the process, by kind
            "sessions": self.sessions,
            "purses": self.purses,
            "hours": self.hours,
            "breakers": self.breakers,
            "counts": self.counts,
        }
        self._reserved: dict[str, int] = {}  # tokens that tickets have set aside, by scope
        # By ticket: its scopes, the tokens set aside in each of them, and when it expires.
        self._tickets: dict[str, tuple[tuple[str, ...], int, float]] = {}
        self._next_expiry = float("inf")  # no ticket expires before this time

    # Sessions

    def load(self, session: str, now: float, limits: Sequence[Limit] = ()) -> SessionState:
        """Return a session as ``Store.load`` does."""
        state = self.sessions.get(session)
        if state is not None and now - state.last_seen > self._ttl:
            del self.sessions[session]
            state = None
        self._expire(now)
        counts = {limit.scope: self._count(limit, now) for limit in limits}
        state = state or SessionState(session, first_seen=now, last_seen=now)
        return self._counted(state, now, counts)

    def write(self, change: Change, now: float) -> dict[str, int]:
        """Apply a change as ``Store.write`` does, without its events."""
        tokens_before = {}
        if (settlement := change.settlement) is not None:
            tokens_before = self.settle(settlement.ticket, settlement.amounts, now)
        if change.session:
            self._add_to_session(change, now)
        self.breakers.update(change.breakers)
        for hour_key, counts in change.counts.items():
            key = self._agents.bounded(hour_key)
            self.counts[key] = add(self.counts.get(key, {}), counts)
        return tokens_before

    def _add_to_session(self, change: Change, now: float) -> None:
        self.forget_idle(now, STEP)
        session, sticky = change.session, change.sticky
        old = self.sessions.get(session) or SessionState(session, first_seen=now)
        self.sessions[session] = SessionState(  # dataclasses.replace takes five times as long
            session,
            turns=old.turns + change.turns,
            tier=change.tier or old.tier,
            sticky=_lasting({**old.sticky, **sticky}, now) if sticky else old.sticky,
            first_seen=min(now, old.first_seen),
            last_seen=max(now, old.last_seen),
            replies=(*old.replies, change.reply)[-change.replies_kept :]
            if change.reply
            else old.replies,
        )
        self.sessions.move_to_end(session)
        if (over := len(self.sessions) - self._sizes.max_sessions) > 0:
            for name in busiest_key([*self.sessions])[: over + self._sizes.max_sessions // SHARE]:
                del self.sessions[name]

    def delete(self, session: str) -> bool:
        """Forget a session with its counts; return whether it was known."""
        self._drop_purse(_SESSION + session)
        if session not in self.sessions:
            return False
        del self.sessions[session]
        return True

    def page(self, now: float, offset: int, limit: int) -> list[SessionState]:
        """Return sessions as ``Store.sessions`` does."""
        self._expire(now)
        states = islice(reversed(self.sessions.values()), offset, offset + limit)
        return [self._counted(s, now) for s in states if now - s.last_seen <= self._ttl]

    def count_sessions(self, now: float) -> int:
        by_age = self.sessions.values()
        idle = sum(1 for _ in takewhile(lambda s: now - s.last_seen > self._ttl, by_age))
        return len(self.sessions) - idle

    def forget_idle(self, now: float, at_most: int) -> bool:
        """Forget up to ``at_most`` idle sessions, then purses; return whether more may be idle."""
        for _ in range(at_most):
            oldest = next(iter(self.sessions.values()), None)
            if oldest is None or now - oldest.last_seen <= self._ttl:
                break
            del self.sessions[oldest.session]
        else:
            return True
        for _ in range(at_most):
            name, purse = next(iter(self.purses.items()), ("", None))
            if purse is None or now - purse.touched <= self._ttl:
                return False
            self._drop_purse(name)
        return True

    def forget_empty_hours(self, now: float) -> None:
        for scope in [s for s, hour in self.hours.items() if not hour.total(now)]:
            del self.hours[scope]

    def forget_counts(self, before: int) -> None:
        """Forget the counters of all hours before ``before`` (hours since 1970)."""
        for key in [*takewhile(lambda key: key.hour < before, self.counts)]:
            del self.counts[key]

    def counts_of(self, first: int, last: int) -> dict[HourKey, Counts]:
        """Return the counters as ``Store.counts`` does."""
        return {key: {**row} for key, row in self.counts.items() if first <= key.hour <= last}

    # Budgets

    def reserve(
        self,
        ticket: str,
        limits: Sequence[Limit],
        tokens: int,
        now: float,
        expires: float,
        *,
        least: int | None = None,
    ) -> Reserved | Refused:
        """Reserve tokens as ``Store.reserve`` does."""
        self._expire(now)
        own_scopes, own_tokens, _ = self._tickets.get(ticket, ((), 0, 0.0))
        used = {limit.scope: self._count(limit, now) for limit in limits}
        minimum = tokens if least is None else min(least, tokens)
        for limit in limits:
            if limit.most is None:
                continue
            remaining = limit.most - used[limit.scope]
            reserved = self._reserved.get(limit.scope, 0)
            reserved -= own_tokens if limit.scope in own_scopes else 0
            if reserved + (tokens if reserved else minimum) > remaining:
                resets_in = self._resets_in(limit, minimum, now)
                return Refused(limit, used[limit.scope], minimum <= remaining, resets_in)
        self._release(ticket)
        if expires <= now:
            return Reserved(used)
        scopes = tuple(dict.fromkeys(limit.scope for limit in limits))
        for scope in scopes:
            self._reserved[scope] = self._reserved.get(scope, 0) + tokens
        self._tickets[ticket] = (scopes, tokens, expires)
        self._next_expiry = min(self._next_expiry, expires)
        return Reserved(used)

    def settle(self, ticket: str, amounts: Mapping[Limit, int], now: float) -> dict[str, int]:
        """End a reservation and count the tokens used; return the tokens before, by scope."""
        self._release(ticket)
        tokens_before = {}
        for limit, used in amounts.items():
            spend = self._spend_in_hour if limit.rolling else self._spend
            tokens_before[limit.scope] = spend(limit.scope, used, now)
        self._bound_purses()
        return tokens_before

    # Internals

    def _bound_purses(self) -> None:
        """Forget purses beyond their number: the least used of the busiest key's older half.

        So no client begins a used-up budget anew by naming many sessions: it would have to spend as
        much in each of them.
        """
        most = self._sizes.max_sessions + SPARE_PURSES
        if (over := len(self.purses) - most) <= 0:
            return
        old = busiest_key([*self.purses], len(_SESSION))
        used = {name: max(self.purses[name].used.values(), default=0) for name in old}
        for name in nsmallest(over + most // SHARE, old, key=used.__getitem__):
            del self.purses[name]

    def _counted(
        self, state: SessionState, now: float, counts: Mapping[str, int] | None = None
    ) -> SessionState:
        name = _SESSION + state.session
        purse = self._purse(name, now)
        spent = purse.used if purse is not None else _NOTHING
        sticky = state.sticky
        return SessionState(  # all its fields, in their order: by name it takes twice as long
            state.session,
            spent.get(name, 0),
            self._reserved.get(name, 0),
            spent.get(name + ESTIMATED, 0),
            counts or {},
            state.turns,
            state.tier,
            _lasting(sticky, now) if sticky else sticky,
            state.first_seen,
            state.last_seen,
            state.replies,
        )

    def _count(self, limit: Limit, now: float) -> int:
        scope = limit.scope
        if not limit.rolling:
            purse = self._purse(purse_of(scope), now)
            return purse.used.get(scope, 0) if purse is not None else 0
        hour = self.hours.get(scope)
        return hour.total(now) if hour is not None else 0

    def _purse(self, name: str, now: float) -> Purse | None:
        """Return a purse, or None if there is none; forget a purse that is idle for too long."""
        purse = self.purses.get(name)
        if purse is not None and now - purse.touched > self._ttl:
            self._drop_purse(name)
            return None
        return purse

    def _spend(self, scope: str, tokens: int, now: float) -> int:
        """Count tokens in a scope's purse; return the scope's tokens before."""
        name = purse_of(scope)
        purse = self._purse(name, now)
        tokens_before = purse.used.get(scope, 0) if purse is not None else 0
        if tokens:
            purse = purse or Purse()
            purse.used[scope] = min(tokens_before + tokens, MOST_TOKENS)
            purse.touched = max(now, purse.touched)
            self.purses[name] = purse
            self.purses.move_to_end(name)
        return tokens_before

    def _spend_in_hour(self, scope: str, tokens: int, now: float) -> int:
        """Count tokens in a scope's rolling hour; return the hour's tokens before."""
        hour = self.hours.get(scope) or RollingHour()
        tokens_before = hour.total(now)
        if tokens:
            hour.add(tokens, now)
            self.hours[scope] = hour
        return tokens_before

    def _drop_purse(self, name: str) -> None:
        if name in self.purses:
            del self.purses[name]

    def _resets_in(self, limit: Limit, tokens: int, now: float) -> float:
        if not limit.rolling:
            purse = self.purses.get(purse_of(limit.scope))
            return max(0.0, purse.touched + self._ttl - now) if purse is not None else self._ttl
        hour = self.hours.get(limit.scope) or RollingHour()
        return hour.room_in(tokens, limit.most or 0, now)

    def _release(self, ticket: str) -> None:
        reservation = self._tickets.pop(ticket, None)
        if reservation is None:
            return
        scopes, tokens, _ = reservation
        for scope in scopes:
            remaining = self._reserved.pop(scope, 0) - tokens
            if remaining > 0:
                self._reserved[scope] = remaining

    def _expire(self, now: float) -> None:
        if now < self._next_expiry:
            return
        for ticket in [t for t, (_, _, expires) in self._tickets.items() if expires <= now]:
            self._release(ticket)
        self._next_expiry = min((e for _, _, e in self._tickets.values()), default=float("inf"))


def _lasting(sticky: Mapping[str, Sticky], now: float) -> dict[str, Sticky]:
    return {model: entry for model, entry in sticky.items() if entry.until > now}
