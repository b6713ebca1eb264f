"""The store that forgets: one process, bounded."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.breaker import BreakerState
from .store import (
    EventQuery,
    Limit,
    Refused,
    Reserved,
    SessionDelta,
    SessionState,
    Sticky,
)

MAX_EVENTS = 10_000
SPARE_SCOPES = 1_000  # counts kept that belong to no session here: keys, tiers, parents
_MINUTE = 60.0
_MINUTES = 60


class RollingHour:
    """Tokens of the last 60 minutes in 61 buckets: exact to the minute, O(1) in memory."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: deque[list[int]] = deque()  # [minute, tokens], oldest first

    def add(self, tokens: int, now: float) -> None:
        minute = int(now // _MINUTE)
        if self._buckets and self._buckets[-1][0] >= minute:
            self._buckets[-1][1] += tokens  # also when the clock jumps back: never lost
        else:
            self._buckets.append([minute, tokens])
        self._forget(minute)

    def total(self, now: float) -> int:
        self._forget(int(now // _MINUTE))
        return sum(tokens for _, tokens in self._buckets)

    def room_in(self, tokens: int, most: int, now: float) -> float:
        """Seconds until ``tokens`` fit under ``most``; an hour if they never will."""
        excess = self.total(now) + tokens - most
        for minute, held in self._buckets:
            excess -= held
            if excess <= 0:
                return max(0.0, (minute + _MINUTES) * _MINUTE - now)
        return _MINUTES * _MINUTE

    def _forget(self, minute: int) -> None:
        while self._buckets and self._buckets[0][0] <= minute - _MINUTES:
            self._buckets.popleft()


class MemoryStore:
    """All of the interface, in this process's memory. The least recently used sessions go first."""

    def __init__(self, *, max_sessions: int, window_size: int, session_ttl: float) -> None:
        self._max_sessions = max_sessions
        self._window_size = window_size
        self._ttl = session_ttl
        self._sessions: OrderedDict[str, SessionState] = OrderedDict()
        self._used: OrderedDict[str, int] = OrderedDict()
        self._hours: OrderedDict[str, RollingHour] = OrderedDict()
        self._reserved: dict[str, int] = {}
        self._tickets: dict[str, tuple[tuple[str, ...], int, float]] = {}
        self._breakers: dict[str, BreakerState] = {}
        self._events: deque[tuple[int, Mapping[str, Any]]] = deque(maxlen=MAX_EVENTS)
        self._next_event = 1

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def load(self, session: str, now: float) -> SessionState:
        state = self._sessions.get(session)
        if state is not None and now - state.last_seen > self._ttl:
            await self.delete(session)
            state = None
        self._expire(now)
        return self._counted(state or SessionState(session, first_seen=now, last_seen=now))

    async def commit(self, session: str, delta: SessionDelta, now: float) -> None:
        self._forget_idle(now)
        old = self._sessions.get(session) or SessionState(session, first_seen=now)
        sticky: dict[str, Sticky] = dict(old.sticky)
        for model, entry in delta.sticky.items():
            if entry is None:
                sticky.pop(model, None)
            else:
                sticky[model] = entry
        window = (*old.window, *delta.window)[-self._window_size :] if delta.window else old.window
        self._sessions[session] = replace(
            old,
            turns=old.turns + delta.turns,
            tier=delta.tier or old.tier,
            window=window,
            sticky=sticky,
            last_seen=max(now, old.last_seen),
        )
        self._sessions.move_to_end(session)
        while len(self._sessions) > self._max_sessions:
            gone, _ = self._sessions.popitem(last=False)
            self._used.pop(f"session:{gone}", None)

    async def delete(self, session: str) -> bool:
        self._used.pop(f"session:{session}", None)
        return self._sessions.pop(session, None) is not None

    async def sessions(self, now: float, offset: int = 0, limit: int = 100) -> list[SessionState]:
        self._forget_idle(now)
        self._expire(now)
        names = list(reversed(self._sessions))[offset : offset + limit]
        return [self._counted(self._sessions[name]) for name in names]

    async def count_sessions(self) -> int:
        return len(self._sessions)

    async def reserve(
        self, ticket: str, limits: Sequence[Limit], tokens: int, now: float, expires: float
    ) -> Reserved | Refused:
        self._expire(now)
        used = {limit.scope: self._count(limit, now) for limit in limits}
        for limit in limits:
            if limit.most is None:
                continue
            before = used[limit.scope]
            if before + self._reserved.get(limit.scope, 0) + tokens > limit.most:
                fits_alone = before + tokens <= limit.most
                return Refused(limit, before, fits_alone, self._resets_in(limit, tokens, now))
        scopes = tuple(limit.scope for limit in limits)
        for scope in scopes:
            self._reserved[scope] = self._reserved.get(scope, 0) + tokens
        self._tickets[ticket] = (scopes, tokens, expires)
        return Reserved(used)

    async def settle(self, ticket: str, limits: Sequence[Limit], used: int, now: float) -> None:
        self._release(ticket)
        for limit in limits:
            if limit.rolling:
                self._hours.setdefault(limit.scope, RollingHour()).add(used, now)
            else:
                self._used[limit.scope] = self._used.get(limit.scope, 0) + used
                self._used.move_to_end(limit.scope)
        while len(self._used) > self._max_sessions + SPARE_SCOPES:
            self._used.popitem(last=False)

    async def breakers(self) -> Mapping[str, BreakerState]:
        return dict(self._breakers)

    async def save_breaker(self, tier: str, state: BreakerState) -> None:
        self._breakers[tier] = state

    async def add_events(self, events: Sequence[Mapping[str, Any]]) -> None:
        for event in events:
            self._events.append((self._next_event, event))
            self._next_event += 1

    async def events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        found = [
            (number, event)
            for number, event in self._events
            if number > query.after
            and event.get("time", 0.0) >= query.since
            and (query.kind is None or event.get("kind") == query.kind)
            and (query.session is None or event.get("session") == query.session)
        ]
        return found[: query.limit] if query.after else found[max(0, len(found) - query.limit) :]

    def _forget_idle(self, now: float) -> None:
        while self._sessions:
            session, state = next(iter(self._sessions.items()))
            if now - state.last_seen <= self._ttl:
                return
            del self._sessions[session]
            self._used.pop(f"session:{session}", None)

    def _counted(self, state: SessionState) -> SessionState:
        scope = f"session:{state.session}"
        return replace(state, used=self._used.get(scope, 0), reserved=self._reserved.get(scope, 0))

    def _count(self, limit: Limit, now: float) -> int:
        if not limit.rolling:
            return self._used.get(limit.scope, 0)
        hour = self._hours.get(limit.scope)
        return hour.total(now) if hour else 0

    def _resets_in(self, limit: Limit, tokens: int, now: float) -> float:
        if not limit.rolling:
            return self._ttl
        hour = self._hours.setdefault(limit.scope, RollingHour())
        return hour.room_in(tokens, limit.most or 0, now)

    def _release(self, ticket: str) -> None:
        scopes, tokens, _ = self._tickets.pop(ticket, ((), 0, 0.0))
        for scope in scopes:
            left = self._reserved[scope] - tokens
            if left:
                self._reserved[scope] = left
            else:
                del self._reserved[scope]

    def _expire(self, now: float) -> None:
        for ticket in [t for t, (_, _, expires) in self._tickets.items() if expires <= now]:
            self._release(ticket)
