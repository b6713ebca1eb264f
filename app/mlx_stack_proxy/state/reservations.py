"""The tokens that running exchanges of this process have set aside; they die with the process."""

from __future__ import annotations

from collections.abc import Sequence

from .spending import Spending
from .store import Limit, ReservationRefused, Reserved


class Reservations:
    """By ticket: tokens set aside in all of its scopes, until they are settled or expire."""

    def __init__(self) -> None:
        self._reserved: dict[str, int] = {}  # tokens that tickets have set aside, by scope
        # By ticket: its scopes, the tokens set aside in each of them, and when it expires.
        self._tickets: dict[str, tuple[tuple[str, ...], int, float]] = {}
        self._next_expiry = float("inf")  # no ticket expires before this time

    def in_scope(self, scope: str, now: float) -> int:
        """Return the tokens that are set aside in a scope."""
        self._expire(now)
        return self._reserved.get(scope, 0)

    def reserve(
        self,
        ticket: str,
        limits: Sequence[Limit],
        tokens: int,
        now: float,
        expires: float,
        *,
        least: int | None,
        spending: Spending,
    ) -> Reserved | ReservationRefused:
        """Reserve as ``Store.reserve`` does; ``spending``: what is used under the limits."""
        self._expire(now)
        own_scopes, own_tokens, _ = self._tickets.get(ticket, ((), 0, 0.0))
        used = {limit.scope: spending.used(limit) for limit in limits}
        minimum = tokens if least is None else min(least, tokens)
        for limit in limits:
            if limit.most is None:
                continue
            remaining = limit.most - used[limit.scope]
            reserved = self._reserved.get(limit.scope, 0)
            reserved -= own_tokens if limit.scope in own_scopes else 0
            if reserved + (tokens if reserved else minimum) > remaining:
                resets_in = spending.resets_in(limit, minimum)
                return ReservationRefused(limit, used[limit.scope], minimum <= remaining, resets_in)
        self.release(ticket)
        if expires > now:
            scopes = tuple(used)
            self._tickets[ticket] = (scopes, tokens, expires)
            self._next_expiry = min(self._next_expiry, expires)
            for scope in scopes:
                self._reserved[scope] = self._reserved.get(scope, 0) + tokens
        return Reserved(used)

    def release(self, ticket: str) -> None:
        """Give back what a ticket has set aside, if anything."""
        scopes, tokens, _ = self._tickets.pop(ticket, ((), 0, 0.0))
        for scope in scopes:
            remaining = self._reserved.pop(scope, 0) - tokens
            if remaining > 0:
                self._reserved[scope] = remaining

    def _expire(self, now: float) -> None:
        if now < self._next_expiry:
            return
        for ticket in [t for t, (_, _, expires) in self._tickets.items() if expires <= now]:
            self.release(ticket)
        self._next_expiry = min((e for _, _, e in self._tickets.values()), default=float("inf"))
