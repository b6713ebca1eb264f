"""The session store's interface, the same for all backends.

Times are seconds since the epoch, passed in by the caller. A session is known by its hash; nothing
here holds prompt or reply text. Every method may raise :class:`StoreError`; the caller serves on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol

from ..frozen import frozen
from .hourly import Counts, Deltas, HourKey

# No count is more: JSON's numbers, Lua's and SQL's hold it exactly. What passes it has been counted
# wrong, and is to be nobody else's trouble.
MOST_TOKENS = 2**53 - 1
ROUNDING = 1.0  # seconds; a clock that is put back by less does no harm
# Follows a session's scope: what of its tokens no upstream has counted.
ESTIMATED = ":estimated"


class Limit(NamedTuple):
    """One budget. ``scope`` names it, e.g. ``session:<hash>``, ``hour``, ``key:<hash>``.

    ``rolling``: over the last 60 minutes, to the minute; else since the session began. ``most``:
    tokens; None only counts.
    """

    scope: str
    most: int | None
    rolling: bool


@frozen
class BreakerState:
    """``failures``: in a row. ``degraded_until``: 0 where it is not. ``cooldown``: the last one."""

    failures: int = 0
    degraded_until: float = 0.0
    cooldown: float = 0.0

    @property
    def degraded(self) -> bool:
        return self.degraded_until > 0

    def until(self, now: float) -> float:
        """When the cool-down ends; 0.0 where it was to have ended before it could begin."""
        left = self.degraded_until - now
        return self.degraded_until if left <= self.cooldown + ROUNDING else 0.0


class StoreError(Exception):
    """The backend failed; what it was asked for may or may not have happened."""


class NotSent(StoreError):
    """The backend was not asked: it has surely not happened."""


@frozen
class Sticky:
    """The tier a session starts on for a requested model, until a time."""

    tier: str
    until: float


@frozen
class SessionState:
    """A session as it stands.

    ``used``, ``reserved``: tokens settled, and set aside by running exchanges. ``estimated``: how
    many of those used no upstream has counted. ``counts``: tokens settled by scope, of the scopes
    that were asked for. ``sticky``: what has not ended yet.
    """

    session: str
    used: int = 0
    reserved: int = 0
    estimated: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    turns: int = 0
    tier: str = ""
    sticky: Mapping[str, Sticky] = field(default_factory=dict)
    first_seen: float = 0.0
    last_seen: float = 0.0


class Sessions(list[SessionState]):
    """Some sessions. ``unreadable``: of how many more the backend has what makes no sense."""

    unreadable = 0


@frozen
class Settlement:
    """What ends a reservation: the tokens that were really used, in each of the scopes."""

    ticket: str
    amounts: Mapping[Limit, int]


@frozen
class Change:
    """What is to be added, all in one. Changes of parallel exchanges may be written in any order.

    ``session``: whose ``turns``, ``tier`` and ``sticky`` these are; "" for nobody's.
    ``settlement``: of a reservation, which may have expired. ``counts``: to the hours' counters.
    ``breakers``: by tier. ``events``: each has ``time``, ``kind``, ``session``.
    """

    session: str = ""
    turns: int = 0
    tier: str = ""
    sticky: Mapping[str, Sticky] = field(default_factory=dict)
    settlement: Settlement | None = None
    counts: Deltas = field(default_factory=dict)
    breakers: Mapping[str, BreakerState] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()


@frozen
class Refused:
    """A reservation that doesn't fit.

    ``waits_for_others``: it would fit if what running exchanges reserved came to nothing.
    ``resets_in``: seconds until there is room again, as far as it is known, for a scope that
    nobody spends from meanwhile.
    """

    limit: Limit
    used: int
    waits_for_others: bool
    resets_in: float


@frozen
class Reserved:
    """A reservation that was made. ``used``: each scope's tokens before it, settled ones only."""

    used: Mapping[str, int]


@frozen
class EventQuery:
    """Which events to give: of whom, of what kind, between two numbers, since a time.

    ``session``: the hash, or its beginning. ``after``: the first ``limit`` ones beyond that number;
    None: the last ``limit`` ones of all. ``before``: only those with a smaller number.
    """

    kind: str | None = None
    session: str | None = None
    request_id: str | None = None
    agent: str | None = None
    after: int | None = None
    before: int | None = None
    since: float = 0.0
    limit: int = 100

    def asks_for(self, event: Mapping[str, Any]) -> bool:
        """Whether an event is one of them, as far as its content tells."""
        return (
            event["time"] >= self.since
            and (self.kind is None or event["kind"] == self.kind)
            and (self.session is None or event["session"].startswith(self.session))
            and (self.request_id is None or event.get("request_id") == self.request_id)
            and (self.agent is None or event.get("agent") == self.agent)
        )


@frozen
class Sizes:
    """How much a store keeps, and for how many seconds."""

    max_sessions: int
    session_ttl: float
    events_ttl: float
    max_events: int


class Store(Protocol):
    """Load at the start of an exchange, write what changed at its end."""

    @property
    def trouble(self) -> str | None:
        """What is wrong with the backend now, in a sentence for people; None if nothing is."""
        ...

    async def open(self) -> None:
        """Start. A backend that can't be reached is trouble, no error: it is tried on and on."""
        ...

    async def close(self) -> None:
        """Write what is not written yet, and end."""
        ...

    async def load(self, session: str, now: float, limits: Sequence[Limit] = ()) -> SessionState:
        """The session, or a new one; one idle for longer than its time to live is new.

        ``limits``: the scopes whose counts are wanted too.
        """
        ...

    async def write(self, change: Change, now: float) -> Mapping[str, int]:
        """Add all of it in one. As with all that changes: on return, it is stored.

        Gives the tokens before it of each scope that it settles: of those who settle at once, one
        crosses a threshold.
        """
        ...

    async def delete(self, session: str) -> bool:
        """Forget a session and its counts, also those within it; whether there was one.

        (One that is forgotten because it is idle leaves what its sub-agents still spend from.)
        """
        ...

    async def sessions(self, now: float, offset: int = 0, limit: int = 100) -> Sessions:
        """The sessions by last use, the latest first."""
        ...

    async def count_sessions(self, now: float) -> int:
        """How many :meth:`sessions` has to give: those that are not idle for too long."""
        ...

    async def reserve(
        self,
        ticket: str,
        limits: Sequence[Limit],
        tokens: int,
        now: float,
        expires: float,
        *,
        partial: bool = False,
    ) -> Reserved | Refused:
        """Set tokens aside in all scopes or in none.

        ``ticket`` names the reservation: made again, it replaces the one before, which does not
        stand in its own way; refused, it leaves the one before as it was. Past ``expires`` it
        counts for nothing: its process is dead. ``partial``: where nobody else has set anything
        aside, it will do if any token is left.
        """
        ...

    async def breakers(self) -> Mapping[str, BreakerState]: ...

    async def events(self, query: EventQuery) -> list[tuple[int, Mapping[str, Any]]]:
        """Events with their numbers, oldest first."""
        ...

    async def count_events(self, query: EventQuery) -> int:
        """How many events the query would give, were it not for its ``limit``."""
        ...

    async def counts(self, first: int, last: int) -> Mapping[HourKey, Counts]:
        """The counters of the hours from ``first`` to ``last``."""
        ...
