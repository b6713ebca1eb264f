"""The store that many proxies share, in Redis or Valkey.

Each operation that reads and changes is one Lua script, which the server runs alone, so changes of
two replicas at the same time are neither lost nor counted twice. All keys carry one hash tag,
because a budget spans sessions and must lie on one node of a cluster. Callers pass times in, so the
replicas' clocks must agree to within a minute. Every key expires.

A write that fails or is cancelled is pending until a task adds it once the server is back. The
server remembers each write's name for ten minutes and ignores a second write of that name, so a
write whose answer was lost is sent again and counts once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from msgspec import Struct
from msgspec.structs import replace

from .. import tasks
from . import redis_link
from .hourly import MAX_COUNTERS, Counts, HourKey
from .redis_link import RedisLink
from .store import (
    MAX_TOKENS,
    BreakerState,
    Change,
    EventQuery,
    KeptRecord,
    Limit,
    NotSent,
    ReservationRefused,
    Reserved,
    Sessions,
    SessionState,
    Settlement,
    Sizes,
    Sticky,
    StoreError,
)

PREFIX = "{mlx-stack}"
RECORDS_PAGE = 200  # how many records one call reads
PAGE = 1_000  # how many events one call reads
CLOCKS_APART = 60.0  # seconds by which replicas' events may be out of order
HOUSEKEEPING_SECONDS = 30.0
PAUSE_SECONDS = 0.05  # between two steps of one housekeeping
HOURS_AT_ONCE = 24  # for how many hours one call reads the counters
STEP = 200  # rows of each kind that one step of the housekeeping forgets at most

# How long a write whose answer was lost may be sent again: the server remembers it for 600 s.
SURE_SECONDS = 500.0
CATCH_UP_SECONDS = 1.0  # how long a reader of counters waits for pending writes
MAX_PENDING = 10_000  # newest writes that are kept while the server is away

_STICKY = b"sticky:"
_Read = TypeVar("_Read")


class _PendingWrite(Struct, frozen=True):
    """A failed write that is still to be added."""

    call: str  # the write's name, by which the server knows whether it has added the write
    change: Change
    sure_until: float | None  # may be resent until then, monotonic; None: always


class RedisStore:
    """The store of ``state.backend: redis``."""

    def __init__(
        self,
        url: str,
        sizes: Sizes,
        clock: Callable[[], float] = time.time,
        *,
        prefix: str = PREFIX,
    ) -> None:
        """``url``: ``redis://``, ``rediss://`` or ``unix://``; ``ValueError`` for any other.

        ``clock``: seconds since the epoch, for the housekeeping and for pending writes.
        """
        self._link = RedisLink(url, prefix, _SCRIPTS)
        self.health = self._link.health
        self._prefix = prefix
        self._sizes = sizes
        self._ttl = _time(sizes.session_ttl)
        self._clock = clock
        process_name = secrets.token_hex(8)
        self._calls = (f"{process_name}:{n}" for n in itertools.count())
        self._pending: deque[_PendingWrite] = deque(maxlen=MAX_PENDING)
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._link.open()
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        await tasks.end(self._task)
        with contextlib.suppress(StoreError):
            await self._add_pending()
        await self._link.close()

    # Sessions

    async def load(self, session: str, now: float, limits: Sequence[Limit] = ()) -> SessionState:
        scopes = (part for limit in limits for part in (limit.scope, int(limit.rolling)))
        *row, counts = await self._link.run("load", _time(now), self._ttl, session, *scopes)
        try:
            state = _session(row, now, self._sizes.session_ttl)
        except ValueError as error:
            raise StoreError(f"what Redis has of a session makes no sense: {error}") from None
        return replace(state, counts=_by_scope(limits, counts)) if limits else state

    async def write(self, change: Change, now: float) -> Mapping[str, int]:
        """Write as ``Store.write`` says. A change that fails is added later, but for its breakers.

        Raises StoreError then, too. So is one whose caller is cancelled meanwhile.
        """
        call, settlement = next(self._calls), change.settlement
        try:
            tokens_before = await self._add(call, change, now)
        except (StoreError, asyncio.CancelledError) as error:
            sure_until = None if isinstance(error, NotSent) else time.monotonic() + SURE_SECONDS
            self._pending.append(_PendingWrite(call, replace(change, breakers={}), sure_until))
            raise
        return _by_scope(settlement.amounts, tokens_before) if settlement is not None else {}

    async def delete(self, session: str) -> bool:
        return bool(await self._link.run("delete", session))

    async def sessions(
        self, now: float, offset: int = 0, limit: int = 100, agent: str | None = None
    ) -> Sessions:
        arguments = (_time(now), self._ttl, offset, limit, agent or "")
        rows, number = await self._link.run("sessions", *arguments)
        ttl = self._sizes.session_ttl
        sessions = Sessions(_readable(lambda row: _session(row, now, ttl), rows))
        sessions.number, sessions.unreadable = int(number), len(rows) - len(sessions)
        return sessions

    # Budgets

    async def reserve(
        self,
        ticket: str,
        limits: Sequence[Limit],
        tokens: int,
        now: float,
        expires: float,
        *,
        least: int | None = None,
    ) -> Reserved | ReservationRefused:
        arguments: list[str | int] = []
        for scope, most, rolling in limits:
            arguments += (scope, "" if most is None else most, int(rolling))
        minimum = tokens if least is None else min(least, tokens)
        times = (_time(now), self._ttl, ticket, tokens, _time(expires), minimum)
        number, *reply = await self._link.run("reserve", *times, *arguments)
        if number == 0:
            return Reserved(_by_scope(limits, reply))
        used, fits_alone, resets_in = reply
        return ReservationRefused(limits[number - 1], int(used), bool(fits_alone), float(resets_in))

    # Breakers and events

    async def breakers(self) -> Mapping[str, BreakerState]:
        flat = await self._link.command("HGETALL", f"{self._prefix}:breakers")
        return dict(_readable(_breaker, _pairs(flat)))

    async def events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        key, forward = f"{self._prefix}:events", query.after is not None
        lowest = f"{(query.after or 0) + 1}-0"
        highest = "+" if query.before is None else f"{max(0, query.before - 1)}-0"
        events: list[tuple[int, Mapping[str, Any]]] = []
        while len(events) < query.limit:
            command = (
                ("XRANGE", key, lowest, highest) if forward else ("XREVRANGE", key, highest, lowest)
            )
            page = await self._link.command(*command, "COUNT", PAGE)
            readable = _readable(_event, page)
            events += [entry for entry in readable if query.asks_for(entry[1])]
            too_old = readable and readable[-1][1]["time"] < query.since - CLOCKS_APART
            if len(page) < PAGE or (too_old and not forward):  # no further event can match
                break
            last_number = _number(page[-1][0])
            if forward:
                lowest = f"{last_number + 1}-0"
            else:
                highest = f"{last_number - 1}-0"
        events = events[: query.limit]
        return events if forward else events[::-1]

    async def count_events(self, query: EventQuery) -> int:
        return len(await self.events(replace(query, limit=self._sizes.max_events)))

    # Records

    async def record(
        self, request_id: str | None = None, agent: str | None = None
    ) -> KeptRecord | None:
        highest = "+"
        while True:
            command = ("XREVRANGE", f"{self._prefix}:records", highest, "-", "COUNT", RECORDS_PAGE)
            page = await self._link.command(*command)
            for record in _readable(_record, page):
                asked, value = (request_id, record.id) if request_id else (agent, record.agent)
                if asked in (None, value):
                    return record
            if len(page) < RECORDS_PAGE:
                return None
            highest = f"({page[-1][0].decode()}"

    # The hours' counters

    async def counts(self, first: int, last: int) -> Mapping[HourKey, Counts]:
        with contextlib.suppress(StoreError, TimeoutError):  # then without what is pending
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self._add_pending()
        counters: dict[HourKey, Counts] = {}
        for start in range(first, last + 1, HOURS_AT_ONCE):
            end = min(last, start + HOURS_AT_ONCE - 1)
            counters |= _readable(_counters, await self._link.run("counts", start, end))
        return counters

    # Internals

    async def _add(self, call: str, change: Change, now: float) -> Any:
        """Run the script that adds a change; a second run with the same ``call`` adds nothing."""
        sizes = self._sizes
        bounds = (_time(sizes.events_ttl), MAX_COUNTERS, sizes.max_sessions, STEP)
        content = orjson.dumps(_content(change))
        return await self._link.run("write", _time(now), self._ttl, call, content, *bounds)

    async def _keep(self) -> None:
        """Add pending writes and do the housekeeping, periodically."""
        clock = asyncio.get_running_loop().time
        house_is_due = clock() + HOUSEKEEPING_SECONDS
        while True:
            await asyncio.sleep(redis_link.RETRY_SECONDS)
            with contextlib.suppress(StoreError):  # the link has logged it; the next round goes on
                await self._add_pending()
                if clock() >= house_is_due:
                    house_is_due = clock() + HOUSEKEEPING_SECONDS
                    await self.keep_house()

    async def _add_pending(self) -> None:
        """Add all pending writes, at the current time. Raises StoreError."""
        while self._pending:
            write = self._pending[0]
            if write.sure_until is None or time.monotonic() < write.sure_until:
                await self._add(write.call, write.change, self._clock())
            # Else the server may have added the write and forgotten its name: don't count it twice.
            if self._pending and self._pending[0] is write:
                self._pending.popleft()

    async def keep_house(self) -> None:
        """Delete what is too old or too many, in small steps. Raises StoreError."""
        sizes = self._sizes
        bounds = (sizes.max_sessions, sizes.max_events, sizes.max_records, sizes.max_record_bytes)
        forgotten = STEP
        while forgotten >= STEP:
            times = (_time(self._clock()), self._ttl, _time(sizes.events_ttl))
            forgotten = int(await self._link.run("tidy", *times, STEP, *bounds))
            await asyncio.sleep(PAUSE_SECONDS if forgotten >= STEP else 0)


_SCRIPTS = ("load", "write", "delete", "sessions", "reserve", "tidy", "counts")


def _time(seconds: float) -> str:
    return repr(float(seconds))


def _content(change: Change) -> dict[str, Any]:
    """Return a change as write.lua reads it. Times and counters are text, to be exact."""
    settlement = change.settlement or Settlement("", {})
    return {
        "session": change.session,
        "turns": change.turns,
        "tier": change.tier,
        "reply": change.reply,
        "replies_kept": change.replies_kept,
        "agent": change.agent,
        "request": change.request_id,
        "sticky": {
            model: f"{entry.until!r} {entry.tier}" for model, entry in change.sticky.items()
        },
        "ticket": settlement.ticket,
        "amounts": [
            (limit.scope, limit.rolling, min(tokens, MAX_TOKENS))
            for limit, tokens in settlement.amounts.items()
        ],
        "counts": [
            ([*key], {name: repr(number) for name, number in counts.items()})
            for key, counts in change.counts.items()
        ],
        "breakers": {
            tier: orjson.dumps((entry.failures, entry.degraded_until, entry.cooldown)).decode()
            for tier, entry in change.breakers.items()
        },
        "events": [(_time(event.time), event.body) for event in change.events],
        "records": [
            (r.id, repr(r.at), r.agent, r.session, r.body.decode()) for r in change.records
        ],
    }


def _by_scope(limits: Iterable[Limit], counts: Any) -> dict[str, int]:
    """Return counts by scope; none if ``counts`` is empty, as for a write made before."""
    return {limit.scope: int(count) for limit, count in zip(limits, counts, strict=False)}


def _pairs(flat: Any) -> list[tuple[bytes, bytes]]:
    items = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    return list(items)


def _session(row: Any, now: float, ttl: float) -> SessionState:
    name, flat, used, reserved, estimated = row
    fields = dict(_pairs(flat))
    if now - float(fields.get(b"last", now)) > ttl:
        fields = {}
    sticky = {}
    for key, value in fields.items():
        if key.startswith(_STICKY):
            until, _, tier = value.decode().partition(" ")
            if float(until) > now:
                sticky[key[len(_STICKY) :].decode()] = Sticky(tier, float(until))
    return SessionState(
        name.decode(),
        used=int(used),
        reserved=int(reserved),
        estimated=int(estimated),
        turns=int(fields.get(b"turns", 0)),
        tier=fields.get(b"tier", b"").decode(),
        sticky=sticky,
        first_seen=float(fields.get(b"first", now)),
        last_seen=float(fields.get(b"last", now)),
        replies=tuple(fields.get(b"replies", b"").decode().splitlines()),
        agent=fields.get(b"agent", b"").decode(),
        request_id=fields.get(b"request", b"").decode(),
    )


def _breaker(pair: tuple[bytes, bytes]) -> tuple[str, BreakerState]:
    tier, state = pair
    failures, degraded_until, cooldown = orjson.loads(state)
    return tier.decode(), BreakerState(int(failures), float(degraded_until), float(cooldown))


def _event(entry: Any) -> tuple[int, Mapping[str, Any]]:
    number, fields = entry
    event = orjson.loads(dict(_pairs(fields))[b"body"])
    if not isinstance(event["session"], str) or not isinstance(event["time"], (int, float)):
        raise ValueError("no event of ours")
    return _number(number), event


def _record(entry: Any) -> KeptRecord:
    _, flat = entry
    fields = dict(_pairs(flat))
    name, agent, session = (fields[key].decode() for key in (b"id", b"agent", b"session"))
    return KeptRecord(name, float(fields[b"at"]), agent, session, fields[b"body"])


def _counters(row: Any) -> tuple[HourKey, Counts]:
    hour, name, flat = row
    agent, _, tier = name.decode().partition("\t")
    counters = {counter.decode(): float(number) for counter, number in _pairs(flat)}
    return HourKey(int(hour), agent, tier), counters


def _number(identity: bytes) -> int:
    """Return an event's number, which its stream entry's id has before the dash."""
    return int(identity.partition(b"-")[0])


def _readable(read: Callable[[Any], _Read], rows: Iterable[Any]) -> list[_Read]:
    """Return the rows that ``read`` can parse; another program may have written to our keys."""
    readable = []
    for row in rows:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            readable.append(read(row))
    return readable
