"""Who gets a tier's next slot: sessions take turns, and within a session first come, first served.

Pure bookkeeping; ``proxy/tier_queue.py`` does the waiting. All operations are O(1).
"""

from __future__ import annotations

from collections import OrderedDict


class Ticket:
    """One request's place. ``granted``: it holds a slot."""

    __slots__ = ("granted", "session")

    def __init__(self, session: str) -> None:
        self.session = session
        self.granted = False


class FairQueue:
    """``slots`` places at once; the rest wait."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.in_use = 0
        self.waiting = 0
        # Sessions in the order of their turns; each with its tickets in the order of arrival.
        self._turns: OrderedDict[str, OrderedDict[Ticket, None]] = OrderedDict()

    def enter(self, ticket: Ticket) -> None:
        """Grant the ticket a slot if one is free and nobody waits; else queue it."""
        if self.in_use < self.slots and not self.waiting:
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
        granted = []
        while self.in_use < self.slots and self._turns:
            granted.append(self._next())
        return granted

    def _withdraw(self, ticket: Ticket) -> None:
        own = self._turns.get(ticket.session)
        if own is not None and ticket in own:
            del own[ticket]
            self.waiting -= 1
            if not own:
                del self._turns[ticket.session]

    def _next(self) -> Ticket:
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
