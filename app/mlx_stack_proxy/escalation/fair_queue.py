"""Who gets a tier's next slot: API keys take turns, then a key's sessions, then its requests.

Each :class:`FairQueue` keeps its waiting keys in the order of their turns, each with its sessions
in the order of theirs. The first key's first session gets the next slot for its oldest ticket, and
both move to the end. Several queues may share a limit
(:class:`SharedLimit`), and then the queues take turns as well. This is bookkeeping only:
``tier_queue.py`` does the waiting.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class Ticket:
    """One request's place in a queue. ``key``: the client's API key; "" if it has none."""

    __slots__ = ("granted", "key", "on_grant", "session")

    def __init__(self, session: str, key: str = "") -> None:
        self.session = session
        self.key = key
        self.granted = False  # whether it holds a slot
        self.on_grant: Callable[[], None] | None = None  # called when a slot is granted


class SharedLimit:
    """A common limit of several queues: how many of their slots may be in use at once."""

    def __init__(self) -> None:
        self.limit: int | None = None  # None: all slots of all queues
        self._queues: list[FairQueue] = []

    def add(self, queue: FairQueue) -> None:
        self._queues.append(queue)

    @property
    def is_full(self) -> bool:
        return self.limit is not None and sum(q.in_use for q in self._queues) >= self.limit

    def set_limit(self, limit: int | None) -> None:
        """Change the limit, and grant the slots that are free now. No granted slot is taken."""
        self.limit = limit
        self.grant_free()

    def grant_free(self) -> None:
        """Grant all free slots; a queue that has had a turn goes to the end of the row."""
        while (queue := next((q for q in self._queues if q.could_grant), None)) is not None:
            queue.grant_next()
            self._queues.remove(queue)
            self._queues.append(queue)


class FairQueue:
    """One tier's slots, and the tickets that wait for one."""

    def __init__(self, slots: int, shared: SharedLimit | None = None) -> None:
        self.slots = slots  # how many tickets may hold a slot at once, within the common limit
        self.shared = shared or SharedLimit()
        self.shared.add(self)
        self.in_use = 0  # tickets that hold a slot
        self.waiting = 0  # tickets that wait for a slot
        # Waiting keys and their sessions in the order of their turns; tickets as they arrived.
        self._turns: OrderedDict[str, OrderedDict[str, OrderedDict[Ticket, None]]] = OrderedDict()

    def join(self, ticket: Ticket) -> None:
        """Grant the ticket a slot if one is free and no ticket waits; else queue it."""
        if self.take():
            ticket.granted = True
            return
        sessions = self._turns.setdefault(ticket.key, OrderedDict())
        sessions.setdefault(ticket.session, OrderedDict())[ticket] = None
        self.waiting += 1

    def take(self) -> bool:
        """Take a slot without a ticket, if one is free and no ticket waits."""
        if not self.has_room:
            return False
        self.in_use += 1
        return True

    def leave(self, ticket: Ticket | None) -> None:
        """Give back a slot, or the ticket's place among the waiting; grant what is free now.

        ``ticket``: None for a slot that was taken without one.
        """
        if ticket is None:
            self.in_use -= 1
        elif ticket.granted:
            ticket.granted = False
            self.in_use -= 1
        else:
            self._withdraw(ticket)
        self.shared.grant_free()

    def set_slots(self, slots: int) -> None:
        """Change the number of slots, and grant what is free now. No granted slot is taken."""
        self.slots = slots
        self.shared.grant_free()

    @property
    def has_room(self) -> bool:
        """Whether a ticket that joins now gets a slot at once."""
        return self.in_use < self.slots and not self.waiting and not self.shared.is_full

    @property
    def could_grant(self) -> bool:
        """Whether a ticket waits although a slot is free."""
        return self.in_use < self.slots and bool(self._turns) and not self.shared.is_full

    def grant_next(self) -> None:
        """Grant a slot to the key whose turn it is; call it only while :attr:`could_grant`."""
        key, sessions = self._turns.popitem(last=False)
        session, tickets = sessions.popitem(last=False)
        ticket, _ = tickets.popitem(last=False)
        if tickets:
            sessions[session] = tickets  # to the end: the key's other sessions come first
        if sessions:
            self._turns[key] = sessions  # and so do all other keys
        self.waiting -= 1
        self.in_use += 1
        ticket.granted = True
        if ticket.on_grant is not None:
            ticket.on_grant()

    def _withdraw(self, ticket: Ticket) -> None:
        sessions = self._turns.get(ticket.key)
        tickets = sessions.get(ticket.session) if sessions is not None else None
        if sessions is None or tickets is None or ticket not in tickets:
            return
        del tickets[ticket]
        self.waiting -= 1
        if not tickets:
            del sessions[ticket.session]
        if not sessions:
            del self._turns[ticket.key]
