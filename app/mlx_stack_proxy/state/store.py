"""The session store's interface, which every backend implements.

Times are seconds since the epoch, passed in by the caller. A session is known by its hash; nothing
here holds prompt or reply text. Every method may raise :class:`StoreError`; the caller then serves
its client without the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from .hourly import Counts, Deltas, HourKey
from .trouble import Trouble

# The largest token count, which JSON, Lua and SQL hold exactly. A larger number can only be a
# mistake, and must not break the counts that it is added to.
MAX_TOKENS = 2**53 - 1
ROUNDING = 1.0  # seconds; a clock that is put back by less ends no cool-down
SESSION = "session:"  # the scope of a session's tokens is this and its hash
# Suffix of a session's scope; this scope counts the tokens that the proxy had to estimate.
ESTIMATED = ":estimated"
# A rolling scope counts the tokens of the last 60 minutes, by the minute.
MINUTE = 60.0
MINUTES = 60
# Callers' clocks may differ by this many minutes. Tokens of a later minute were counted
# by a clock that has been set back since.
LAG = 1


class Limit(NamedTuple):
    """One token budget, which the store counts under the name ``scope``."""

    scope: str  # e.g. ``session:<hash>``, ``hour``, ``key:<hash>``
    most: int | None  # tokens; None: count them without a limit
    rolling: bool  # True: count the last 60 minutes, to the minute; False: since the session began


class BreakerState(Struct, frozen=True):
    """The state of a tier's circuit breaker; its rules are in ``escalation/breaker.py``."""

    failures: int = 0  # in a row
    degraded_until: float = 0.0  # the end of the cool-down; 0.0: the tier is not degraded
    cooldown: float = 0.0  # seconds that the last cool-down takes

    @property
    def degraded(self) -> bool:
        return self.degraded_until > 0

    def until(self, now: float) -> float:
        """Return when the cool-down ends.

        Return 0.0 if more time is left than the cool-down takes, because the clock was put back
        then.
        """
        remaining = self.degraded_until - now
        return self.degraded_until if remaining <= self.cooldown + ROUNDING else 0.0


class StoreError(Exception):
    """The backend failed; it may or may not have done what it was asked to do."""


class NotSent(StoreError):
    """The backend was not asked, so it has certainly done nothing."""


class Sticky(Struct, frozen=True):
    """The tier on which a session's exchanges start for one requested model."""

    tier: str
    until: float  # seconds since the epoch


class SessionState(Struct, frozen=True):
    """A session's stored state."""

    session: str  # its hash
    used: int = 0  # tokens settled
    reserved: int = 0  # tokens that running exchanges have reserved
    estimated: int = 0  # how many of the tokens in ``used`` the proxy had to estimate
    # Tokens settled, by scope: the scopes that ``load`` was asked for.
    counts: Mapping[str, int] = {}
    turns: int = 0
    tier: str = ""  # the last turn's tier
    # By requested model; entries whose time is over are left out.
    sticky: Mapping[str, Sticky] = {}
    first_seen: float = 0.0
    last_seen: float = 0.0
    replies: tuple[str, ...] = ()  # digests of the last text replies, oldest first
    agent: str = ""  # who asked last
    request_id: str = ""  # of that exchange


class Sessions(list[SessionState]):
    """One page of sessions."""

    number = 0  # the total number
    unreadable = 0  # sessions left out of this page because their data is invalid


class Settlement(Struct, frozen=True):
    """The end of a reservation."""

    ticket: str  # names the reservation, which may have expired
    amounts: Mapping[Limit, int]  # tokens that were really used, to be counted in each scope


class KeptEvent(NamedTuple):
    """A stored event."""

    time: float
    kind: str
    session: str  # its hash; "": of none
    body: str  # the whole event as JSON


class KeptRecord(NamedTuple):
    """One exchange's stored record, from which it can be explained later."""

    id: str  # the request's id; a client may use one twice
    at: float  # when the exchange ended
    agent: str
    session: str  # its hash
    body: bytes  # opaque to the store


class Change(Struct, frozen=True):
    """One write to the store, applied as a whole.

    A change adds, so parallel exchanges' changes may be written in any order.
    """

    session: str = ""  # the session of the next five fields; "": they are not written
    turns: int = 0  # added to the session's turns
    tier: str = ""  # the session's tier from now on; "": the session keeps its tier
    sticky: Mapping[str, Sticky] = {}  # by requested model
    agent: str = ""  # who asked; "": the session keeps its agent and its request
    request_id: str = ""
    settlement: Settlement | None = None
    counts: Deltas = {}  # added to the hours' counters
    breakers: Mapping[str, BreakerState] = {}  # new states, by tier
    events: Sequence[KeptEvent] = ()
    reply: str = ""  # the digest, in one line, of a text reply that joins the session's; "": none
    replies_kept: int = 0  # how many of them the session keeps then, the last ones
    records: Sequence[KeptRecord] = ()


class ReservationRefused(Struct, frozen=True):
    """A reservation that doesn't fit into a budget."""

    limit: Limit  # the first budget that has no room
    used: int  # tokens settled in this budget's scope
    waits_for_others: bool  # whether it would fit without others' reservations
    resets_in: float  # estimated seconds until it fits, if nothing else uses the scope


class Reserved(Struct, frozen=True):
    """A reservation that was made."""

    used: Mapping[str, int]  # tokens settled so far, by scope


class EventQuery(Struct, frozen=True):
    """Selects events; a field that is None sets no condition."""

    kind: str | None = None
    session: str | None = None  # the hash, or its beginning
    request_id: str | None = None
    agent: str | None = None
    after: int | None = None  # the first ``limit`` events with larger numbers; None: the last ones
    before: int | None = None  # events with smaller numbers alone
    since: float = 0.0  # seconds since the epoch
    limit: int = 100

    def asks_for(self, event: Mapping[str, Any]) -> bool:
        """Whether an event matches by its content, regardless of its number."""
        return (
            event["time"] >= self.since
            and (self.kind is None or event["kind"] == self.kind)
            and (self.session is None or event["session"].startswith(self.session))
            and (self.request_id is None or event.get("request_id") == self.request_id)
            and (self.agent is None or event.get("agent") == self.agent)
        )


class Sizes(Struct, frozen=True):
    """How much a store keeps, and for how long."""

    max_sessions: int
    session_ttl: float  # seconds since a session's last use
    events_ttl: float  # seconds; for the hours' counters, too
    max_events: int
    # Of records the newest are kept, as many as both of these allow.
    max_records: int = 10_000
    max_record_bytes: int = 8 * 1024 * 1024  # of all bodies together


class Store(Protocol):
    """A backend. An exchange loads its session at its start and writes its change at its end."""

    health: Trouble

    async def open(self) -> None:
        """Start. An unreachable backend raises nothing: the store keeps trying."""
        ...

    async def close(self) -> None:
        """Write everything that is still unwritten, and close."""
        ...

    async def load(self, session: str, now: float, limits: Sequence[Limit] = ()) -> SessionState:
        """Return the session with the counts of ``limits``; a new one if it is unknown or idle."""
        ...

    async def write(self, change: Change, now: float) -> Mapping[str, int]:
        """Apply the change as a whole. Changing methods return once the change is stored.

        Return by scope the tokens before the change's settlement. The store settles one change
        after the other, so of exchanges that end together exactly one crosses a threshold.
        """
        ...

    async def delete(self, session: str) -> bool:
        """Delete a session and the counts of all its scopes; return whether it existed."""
        ...

    async def sessions(
        self, now: float, offset: int = 0, limit: int = 100, agent: str | None = None
    ) -> Sessions:
        """Return sessions (that ``agent`` used last) that aren't idle, the last used first."""
        ...

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
        """Reserve ``tokens`` in the scopes of all ``limits``, or in none.

        ``ticket`` names the reservation. A second reservation with the same ticket replaces the
        first, whose tokens don't count against it; if the second is refused, the first stays.
        ``expires``: when the reservation ends by itself, because its process must be dead by then.
        ``least``: in a scope where nobody else has set tokens aside, this many tokens left are
        enough; None: all of ``tokens``.
        """
        ...

    async def breakers(self) -> Mapping[str, BreakerState]: ...  # by tier

    async def events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        """Return the events that ``query`` selects, each after its number, oldest first."""
        ...

    async def count_events(self, query: EventQuery) -> int:
        """Count the events that ``query`` selects, as if it had no ``limit``."""
        ...

    async def record(
        self, request_id: str | None = None, agent: str | None = None
    ) -> KeptRecord | None:
        """Return the newest record: of a request's id, or else of an agent, or else of all."""
        ...

    async def counts(self, first: int, last: int) -> Mapping[HourKey, Counts]:
        """Return the counters of the hours ``first`` to ``last`` (hours since 1970)."""
        ...
