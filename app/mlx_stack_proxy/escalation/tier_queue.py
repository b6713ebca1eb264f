"""Who gets a tier's next slot, and the wait for it: API keys take turns, then a key's sessions.

Each :class:`TierQueue` keeps its waiting keys in the order of their turns, each with its sessions
in order. The first key's first session gets the next slot for its oldest ticket, and both move to
the end. The local tiers share a limit (:class:`SharedLimit`), one request in all while memory is
short; then the queues take turns as well.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Literal, Self

from ..settings import TierSettings

NO_QUEUE: AbstractAsyncContextManager[None] = nullcontext()


class QueueTimeout(Exception):
    """No slot came free within ``queue_timeout``.

    ``shedding``: the local tiers take only one request at a time, because memory is short.
    """

    def __init__(self, seconds: float, *, shedding: bool = False) -> None:
        self.seconds = seconds  # how long the request has waited
        self.reason: Literal["memory_pressure", "tier_busy"] = (
            "memory_pressure" if shedding else "tier_busy"
        )
        why = "; memory is short, and local tiers take one request at a time" if shedding else ""
        super().__init__(f"no free place within {seconds:g} s{why}")


class Ticket:
    """One request's place in a queue: ``async with`` waits for a slot and releases it.

    ``key``: the client's API key; "" if it has none.
    """

    __slots__ = ("_turn", "granted", "key", "queue", "session")

    def __init__(self, queue: TierQueue, session: str, key: str = "") -> None:
        self.queue = queue
        self.session = session
        self.key = key
        self.granted = False  # whether it holds a slot
        self._turn: asyncio.Event | None = None  # None: nothing waits for the slot

    async def __aenter__(self) -> Self:
        """Wait for a slot. Raises :class:`QueueTimeout`."""
        queue = self.queue
        if queue.join(self):
            return self
        self._turn = asyncio.Event()
        try:
            async with asyncio.timeout(queue.timeout):
                await self._turn.wait()
        except BaseException as error:
            timed_out = isinstance(error, TimeoutError)
            if timed_out and self.granted:  # the slot was granted at the same time
                return self
            queue.leave(self)
            if timed_out:
                shedding = queue.shared.limit is not None
                raise QueueTimeout(queue.timeout, shedding=shedding) from None
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.queue.leave(self)

    def grant(self) -> None:
        self.granted = True
        self.queue.in_use += 1
        if self._turn is not None:
            self._turn.set()


class SharedLimit:
    """A common limit of several queues: how many of their slots may be in use at once."""

    def __init__(self) -> None:
        self.limit: int | None = None  # None: all slots of all queues
        self.waiting = 0  # waiting tickets in these queues
        self.queues: list[TierQueue] = []

    @property
    def is_full(self) -> bool:
        return self.limit is not None and sum(q.in_use for q in self.queues) >= self.limit

    def set_limit(self, limit: int | None) -> None:
        """Change the limit, and grant the slots that are free now. Granted slots stay."""
        self.limit = limit
        self.grant_free()

    def grant_free(self) -> None:
        """Grant all free slots; a queue that has had its turn moves to the end."""
        while self.waiting and not self.is_full:
            queue = next((q for q in self.queues if q.waiting and q.in_use < q.slots), None)
            if queue is None:
                return
            queue.grant_next()
            self.queues.remove(queue)
            self.queues.append(queue)


class TierQueue:
    """One tier's slots, and the tickets that wait for one.

    ``shared``: the local tiers' common limit; None for a tier that is not on this machine.
    """

    def __init__(self, tier: TierSettings, shared: SharedLimit | None = None) -> None:
        self.local = shared is not None
        self.shared = shared or SharedLimit()
        self.shared.queues.append(self)
        self.slots = tier.max_concurrency  # how many tickets may hold a slot at once
        self.timeout = tier.queue_timeout
        self.in_use = 0  # tickets that hold a slot
        self.waiting = 0  # tickets that wait for a slot
        # Waiting keys and their sessions in the order of their turns; tickets as they arrived.
        self._turns: OrderedDict[str, OrderedDict[str, OrderedDict[Ticket, None]]] = OrderedDict()

    @property
    def has_room(self) -> bool:
        """Whether a ticket that joins now gets a slot at once."""
        return self.in_use < self.slots and not self.waiting and not self.shared.is_full

    def adapt(self, tier: TierSettings) -> None:
        """Use new limits, and grant the slots that are free now. Granted slots stay.

        A waiting request keeps its timeout.
        """
        self.slots, self.timeout = tier.max_concurrency, tier.queue_timeout
        self.shared.grant_free()

    def join(self, ticket: Ticket) -> bool:
        """Grant a slot if one is free and nothing waits, else queue the ticket; return which."""
        if self.has_room:
            ticket.grant()
            return True
        sessions = self._turns.setdefault(ticket.key, OrderedDict())
        sessions.setdefault(ticket.session, OrderedDict())[ticket] = None
        self._count_waiting(1)
        return False

    def leave(self, ticket: Ticket) -> None:
        """Release the ticket's slot, or remove the ticket from the queue; grant the free slots."""
        if ticket.granted:
            ticket.granted = False
            self.in_use -= 1
        else:
            sessions = self._turns.get(ticket.key, OrderedDict())
            tickets = sessions.get(ticket.session, OrderedDict())
            if ticket in tickets:
                del tickets[ticket]
                self._count_waiting(-1)
                self._tidy(ticket)
        self.shared.grant_free()

    def grant_next(self) -> None:
        """Grant a slot to the key whose turn it is; call it only while a ticket waits."""
        key, sessions = next(iter(self._turns.items()))
        session, tickets = next(iter(sessions.items()))
        ticket, _ = tickets.popitem(last=False)
        sessions.move_to_end(session)  # the key's other sessions come next
        self._turns.move_to_end(key)  # and so do all other keys
        self._count_waiting(-1)
        self._tidy(ticket)
        ticket.grant()

    def _count_waiting(self, change: int) -> None:
        self.waiting += change
        self.shared.waiting += change

    def _tidy(self, ticket: Ticket) -> None:
        """Drop the session, and the key, if none of their tickets waits any more."""
        sessions = self._turns[ticket.key]
        if not sessions[ticket.session]:
            del sessions[ticket.session]
        if not sessions:
            del self._turns[ticket.key]


class TierQueues:
    """A queue for each tier; pass-through models have none."""

    def __init__(self, tiers: Mapping[str, TierSettings]) -> None:
        self._local = SharedLimit()
        # A removed tier keeps its queue, because an exchange on it may still run.
        self._queues: dict[str, TierQueue] = {}
        self.adapt(tiers)

    def adapt(self, tiers: Mapping[str, TierSettings]) -> None:
        """Use other tiers or limits from now on, without affecting running or waiting requests."""
        for name, tier in tiers.items():
            queue = self._queues.get(name)
            if queue is None or queue.local != tier.local:
                self._queues[name] = TierQueue(tier, self._local if tier.local else None)
            else:
                queue.adapt(tier)
        self._tier_names = list(tiers)

    def __getitem__(self, tier: str) -> TierQueue | None:
        return self._queues.get(tier)

    def place(
        self, tier: str, session: str, key: str
    ) -> AbstractAsyncContextManager[Ticket | None]:
        """Hold a slot of a tier, after waiting for it. Entering raises :class:`QueueTimeout`.

        A pass-through model has no queue, so its requests hold nothing and never wait.
        """
        queue = self._queues.get(tier)
        return NO_QUEUE if queue is None else Ticket(queue, session, key)

    def shed(self, on: bool) -> None:
        """Limit all local tiers together to one request at a time, or end that."""
        self._local.set_limit(1 if on else None)

    def readings(self) -> list[tuple[str, int, int]]:
        """Return each tier's name, its slots in use, and its number of waiting requests."""
        queues = ((name, self._queues[name]) for name in self._tier_names)
        return [(name, queue.in_use, queue.waiting) for name, queue in queues]
