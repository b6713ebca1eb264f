"""Who gets a tier's next slot: sessions take turns, and within a session first come, first served.

Several queues may have a limit over all of them together; then they take turns, too. Pure
bookkeeping; ``proxy/tier_queue.py`` does the waiting. All operations are O(1), where a limit is in
force O(queues).
"""

from __future__ import annotations

from collections import OrderedDict


class Ticket:
    """One request's place. ``granted``: it holds a slot."""

    __slots__ = ("granted", "session")

    def __init__(self, session: str) -> None:
        self.session = session
        self.granted = False


class Together:
    """Several queues' common limit: how many of their slots may be in use at once."""

    def __init__(self) -> None:
        self.limit: int | None = None  # None: as many as the queues have
        self._queues: list[FairQueue] = []

    def join(self, queue: FairQueue) -> None:
        self._queues.append(queue)

    @property
    def is_full(self) -> bool:
        return self.limit is not None and sum(q.in_use for q in self._queues) >= self.limit

    def set_limit(self, limit: int | None) -> list[Ticket]:
        """Change it; the tickets that are granted a slot now. What runs already runs on."""
        self.limit = limit
        return self.grant_free()

    def grant_free(self) -> list[Ticket]:
        """Grant what is free; the queue that has had a turn is the last to have the next."""
        granted: list[Ticket] = []
        while (queue := next((q for q in self._queues if q.could_grant), None)) is not None:
            granted.append(queue.grant_next())
            self._queues.remove(queue)
            self._queues.append(queue)
        return granted


class FairQueue:
    """``slots`` places at once, fewer where a limit ``together`` with others is reached."""

    def __init__(self, slots: int, together: Together | None = None) -> None:
        self.slots = slots
        self._together = together or Together()
        self._together.join(self)
        self.in_use = 0
        self.waiting = 0
        # Sessions in the order of their turns; each with its tickets in the order of arrival.
        self._turns: OrderedDict[str, OrderedDict[Ticket, None]] = OrderedDict()

    def enter(self, ticket: Ticket) -> None:
        """Grant the ticket a slot if one is free and nobody waits; else queue it."""
        if self.has_room:
            self._grant(ticket)
            return
        self._turns.setdefault(ticket.session, OrderedDict())[ticket] = None
        self.waiting += 1

    def leave(self, ticket: Ticket) -> list[Ticket]:
        """Give the ticket's slot or place back; the tickets that are granted a slot now."""
        if ticket.granted:
            ticket.granted = False
            self.in_use -= 1
        else:
            self._withdraw(ticket)
        return self._grant_free()

    def set_slots(self, slots: int) -> list[Ticket]:
        """Change how many there are; the tickets that are granted one now. What runs runs on."""
        self.slots = slots
        return self._grant_free()

    def _grant_free(self) -> list[Ticket]:
        if self._together.limit is not None:
            return self._together.grant_free()
        granted = []
        while self.could_grant:
            granted.append(self.grant_next())
        return granted

    @property
    def has_room(self) -> bool:
        """Whether who comes now need not wait."""
        return self.in_use < self.slots and not self.waiting and not self._together.is_full

    @property
    def could_grant(self) -> bool:
        """Whether somebody waits for a slot that is free."""
        return self.in_use < self.slots and bool(self._turns) and not self._together.is_full

    def _withdraw(self, ticket: Ticket) -> None:
        own = self._turns.get(ticket.session)
        if own is not None and ticket in own:
            del own[ticket]
            self.waiting -= 1
            if not own:
                del self._turns[ticket.session]

    def grant_next(self) -> Ticket:
        """Grant a slot to whose turn it is; only while :attr:`could_grant`."""
        session, own = self._turns.popitem(last=False)
        ticket, _ = own.popitem(last=False)
        if own:
            self._turns[session] = own  # behind all others: the next turn is theirs
        self.waiting -= 1
        self._grant(ticket)
        return ticket

    def _grant(self, ticket: Ticket) -> None:
        ticket.granted = True
        self.in_use += 1
