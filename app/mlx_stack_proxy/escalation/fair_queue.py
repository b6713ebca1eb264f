"""Who gets a tier's next slot: sessions take turns, and within a session first come, first served.

Several queues may have a limit over all of them together; then they take turns, too. Pure
bookkeeping; ``tier_queue.py`` does the waiting.
"""

from __future__ import annotations

from collections import OrderedDict


class Ticket:
    """One request's place. ``granted``: it holds a slot."""

    __slots__ = ("granted", "session")

    def __init__(self, session: str) -> None:
        self.session = session
        self.granted = False

    def grant(self) -> None:
        self.granted = True


class Together:
    """Several queues' common limit: how many of their slots may be in use at once."""

    def __init__(self) -> None:
        self.limit: int | None = None  # None: as many as the queues have
        self._queues: list[FairQueue] = []

    def add(self, queue: FairQueue) -> None:
        self._queues.append(queue)

    @property
    def is_full(self) -> bool:
        return self.limit is not None and sum(q.in_use for q in self._queues) >= self.limit

    def set_limit(self, limit: int | None) -> None:
        """Change it, and grant what is free now. What runs already runs on."""
        self.limit = limit
        self.grant_free()

    def grant_free(self) -> None:
        """Grant what is free; the queue that has had a turn is the last to have the next."""
        while (queue := next((q for q in self._queues if q.could_grant), None)) is not None:
            queue.grant_next()
            self._queues.remove(queue)
            self._queues.append(queue)


class FairQueue:
    """``slots`` places at once, fewer where a limit ``together`` with others is reached.

    ``in_use``, ``waiting``: how many tickets hold a slot, and how many wait for one.
    """

    def __init__(self, slots: int, together: Together | None = None) -> None:
        self.slots = slots
        self.together = together or Together()
        self.together.add(self)
        self.in_use = 0
        self.waiting = 0
        # Sessions in the order of their turns; each with its tickets in the order of arrival.
        self._turns: OrderedDict[str, OrderedDict[Ticket, None]] = OrderedDict()

    def join(self, ticket: Ticket) -> None:
        """Grant the ticket a slot if one is free and nobody waits; else queue it."""
        if self.has_room:
            self._grant(ticket)
            return
        self._turns.setdefault(ticket.session, OrderedDict())[ticket] = None
        self.waiting += 1

    def leave(self, ticket: Ticket) -> None:
        """Give the ticket's slot or place back; whoever is next gets it."""
        if ticket.granted:
            ticket.granted = False
            self.in_use -= 1
        else:
            self._withdraw(ticket)
        self.together.grant_free()

    def set_slots(self, slots: int) -> None:
        """Change how many there are, and grant what is free now. What runs already runs on."""
        self.slots = slots
        self.together.grant_free()

    @property
    def has_room(self) -> bool:
        """Whether who comes now need not wait."""
        return self.in_use < self.slots and not self.waiting and not self.together.is_full

    @property
    def could_grant(self) -> bool:
        """Whether somebody waits for a slot that is free."""
        return self.in_use < self.slots and bool(self._turns) and not self.together.is_full

    def grant_next(self) -> None:
        """Grant a slot to whose turn it is; only while :attr:`could_grant`."""
        session, own = self._turns.popitem(last=False)
        ticket, _ = own.popitem(last=False)
        if own:
            self._turns[session] = own  # behind all others: the next turn is theirs
        self.waiting -= 1
        self._grant(ticket)

    def _withdraw(self, ticket: Ticket) -> None:
        own = self._turns.get(ticket.session)
        if own is not None and ticket in own:
            del own[ticket]
            self.waiting -= 1
            if not own:
                del self._turns[ticket.session]

    def _grant(self, ticket: Ticket) -> None:
        self.in_use += 1
        ticket.grant()
