"""The store that many proxies share: Redis or Valkey.

Each method is one script, so that what two replicas do at the same time is exact: neither counted
twice nor lost. All keys carry one hash tag, for a budget spans sessions and must lie on one node.
Times are the callers', so the replicas' clocks must agree to within a minute. Every key expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from ..core.breaker import BreakerState
from ..core.budgets import Limit
from .redis_link import RedisLink, Script
from .rows import pack, unpack
from .store import (
    EventQuery,
    Refused,
    Reserved,
    SessionDelta,
    SessionState,
    Sticky,
    StoreError,
)

PREFIX = "{mlx-stack}"
MOST_EVENTS = 100_000
PAGE = 1_000  # events read at once
HOUSEKEEPING_SECONDS = 30.0
PAUSE_SECONDS = 0.05  # between two steps
STEP = 200  # what one step of the housekeeping forgets, at most

_STICKY = b"sticky:"


class RedisStore:
    """``url``: ``redis://``, ``rediss://`` or ``unix://``; the TTLs are seconds.

    ``clock``: seconds since the epoch, for what expires in the background. Raises ``ValueError``
    for a URL that is none.
    """

    def __init__(
        self,
        url: str,
        *,
        max_sessions: int,
        window_size: int,
        session_ttl: float,
        events_ttl: float,
        clock: Callable[[], float] = time.time,
        prefix: str = PREFIX,
    ) -> None:
        self._link = RedisLink(url, prefix)
        self._prefix = prefix
        self._max_sessions = max_sessions
        self._window_size = window_size
        self._ttl = repr(float(session_ttl))
        self._events_ttl = repr(float(events_ttl))
        self._clock = clock
        self._scripts = {name: Script(name) for name in _SCRIPTS}
        self._housekeeper: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str | None:
        return self._link.trouble

    async def open(self) -> None:
        await self._link.open()
        self._housekeeper = asyncio.create_task(self._keep_house())

    async def close(self) -> None:
        if self._housekeeper is not None:
            self._housekeeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._housekeeper
        await self._link.close()

    # Sessions

    async def load(self, session: str, now: float) -> SessionState:
        found = await self._run("load", _time(now), self._ttl, session)
        return _session(found, now)

    async def commit(self, session: str, delta: SessionDelta, now: float) -> None:
        sticky: list[str] = []
        for model, entry in delta.sticky.items():
            sticky += (model, f"{entry.until!r} {entry.tier}" if entry is not None else "")
        await self._run(
            "commit",
            _time(now),
            self._ttl,
            session,
            delta.turns,
            delta.tier,
            pack(delta.window),
            self._window_size,
            self._max_sessions,
            *sticky,
        )

    async def delete(self, session: str) -> bool:
        return bool(await self._run("delete", session))

    async def sessions(self, now: float, offset: int = 0, limit: int = 100) -> list[SessionState]:
        found = await self._run("sessions", _time(now), self._ttl, offset, limit)
        return [_session(one, now) for one in found]

    async def count_sessions(self) -> int:
        return int(await self._link.command("ZCARD", f"{self._prefix}:sessions"))

    # Budgets

    async def reserve(
        self, ticket: str, limits: Sequence[Limit], tokens: int, now: float, expires: float
    ) -> Reserved | Refused:
        given: list[str | int] = []
        for limit in limits:
            most = "" if limit.most is None else limit.most
            given += (limit.scope, most, int(limit.rolling))
        times = (_time(now), self._ttl, ticket, tokens, _time(expires))
        number, *rest = await self._run("reserve", *times, *given)
        if number == 0:
            scopes = (limit.scope for limit in limits)
            return Reserved({scope: int(used) for scope, used in zip(scopes, rest, strict=True)})
        used, fits_alone, resets_in = rest
        return Refused(limits[number - 1], int(used), bool(fits_alone), float(resets_in))

    async def settle(self, ticket: str, limits: Sequence[Limit], used: int, now: float) -> None:
        given: list[str | int] = []
        for limit in limits:
            given += (limit.scope, int(limit.rolling))
        await self._run("settle", _time(now), self._ttl, ticket, used, *given)

    # Breakers and events

    async def breakers(self) -> Mapping[str, BreakerState]:
        found = await self._link.command("HGETALL", f"{self._prefix}:breakers")
        return {tier.decode(): BreakerState(*orjson.loads(state)) for tier, state in _pairs(found)}

    async def save_breaker(self, tier: str, state: BreakerState) -> None:
        values = (state.failures, state.degraded_until, state.cooldown)
        await self._run("save_breaker", tier, orjson.dumps(values))

    async def add_events(self, events: Sequence[Mapping[str, Any]]) -> None:
        given: list[str | bytes] = []
        for event in events:
            try:
                given += (_time(event["time"]), orjson.dumps(event))
            except (TypeError, KeyError) as error:
                raise StoreError(f"no event to keep: {type(error).__name__}") from error
        if given:
            await self._run("add_events", MOST_EVENTS, self._events_ttl, *given)

    async def events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        found: list[tuple[int, Mapping[str, Any]]] = []
        upwards = query.after > 0
        start = query.after + 1
        end = "+"
        while len(found) < query.limit:
            key = f"{self._prefix}:events"
            if upwards:
                page = await self._link.command("XRANGE", key, f"{start}-0", "+", "COUNT", PAGE)
            else:
                page = await self._link.command("XREVRANGE", key, end, "-", "COUNT", PAGE)
            for number, event in map(_event, page):
                start, end = number + 1, f"{number - 1}-0"
                if _asked_for(event, query) and len(found) < query.limit:
                    found.append((number, event))
            if len(page) < PAGE or end == "0-0":
                break
        return found if upwards else found[::-1]

    # Its own

    async def _run(self, name: str, *args: str | bytes | int) -> Any:
        return await self._link.run(self._scripts[name], *args)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            await self._tidy_all()

    async def _tidy_all(self) -> None:
        with contextlib.suppress(StoreError):  # said already; it will do another time
            while True:
                if await self.tidy() < STEP:
                    return
                await asyncio.sleep(PAUSE_SECONDS)

    async def tidy(self) -> int:
        """Forget some of what is too old; how much. Raises StoreError."""
        times = (_time(self._clock()), self._ttl, self._events_ttl)
        return int(await self._run("tidy", *times, STEP))


_SCRIPTS = (
    *("load", "commit", "delete", "sessions", "reserve", "settle"),
    *("save_breaker", "add_events", "tidy"),
)


def _time(seconds: float) -> str:
    return repr(float(seconds))


def _pairs(flat: Any) -> list[tuple[bytes, bytes]]:
    items = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    return list(items)


def _session(found: Any, now: float) -> SessionState:
    name, flat, used, reserved = found
    fields = dict(_pairs(flat))
    sticky = {}
    for key, value in fields.items():
        if key.startswith(_STICKY):
            until, _, tier = value.decode().partition(" ")
            sticky[key[len(_STICKY) :].decode()] = Sticky(tier, float(until))
    return SessionState(
        name.decode(),
        used=int(used),
        reserved=int(reserved),
        turns=int(fields.get(b"turns", 0)),
        tier=fields.get(b"tier", b"").decode(),
        window=unpack(fields.get(b"window", b"")),
        sticky=sticky,
        first_seen=float(fields.get(b"first", now)),
        last_seen=float(fields.get(b"last", now)),
    )


def _event(entry: Any) -> tuple[int, Mapping[str, Any]]:
    number, fields = entry
    body = dict(_pairs(fields))[b"body"]
    return int(number.partition(b"-")[0]), orjson.loads(body)


def _asked_for(event: Mapping[str, Any], query: EventQuery) -> bool:
    return (
        event["time"] >= query.since
        and (query.kind is None or event["kind"] == query.kind)
        and (query.session is None or event["session"] == query.session)
    )
