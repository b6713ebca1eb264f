"""Waiting for a tier's slot, in the order that ``fair_queue.py`` keeps.

A ticket that gets no slot at once waits for an event, which the grant sets. The local tiers share
a limit of one request in all while memory is short.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Literal

from ..settings import TierSettings
from .fair_queue import FairQueue, SharedLimit, Ticket


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


class TierQueue(FairQueue):
    """One tier's slots and its queue.

    ``shared``: the local tiers' common limit; None for a tier that is not on this machine.
    """

    def __init__(self, tier: TierSettings, shared: SharedLimit | None = None) -> None:
        super().__init__(tier.max_concurrency, shared)
        self.local = shared is not None
        self._timeout = tier.queue_timeout

    def adapt(self, tier: TierSettings) -> None:
        """Use the tier's new limits; a request that waits already keeps its timeout."""
        self._timeout = tier.queue_timeout
        self.set_slots(tier.max_concurrency)

    async def enter(self, session: str, key: str = "") -> Ticket:
        """Wait for a slot, which :meth:`leave` gives back. Raises :class:`QueueTimeout`."""
        ticket = Ticket(session, key)
        self.join(ticket)
        if not ticket.granted:
            try:
                await self._wait(ticket)
            except BaseException:
                self.leave(ticket)
                raise
        return ticket

    async def _wait(self, ticket: Ticket) -> None:
        granted = asyncio.Event()
        ticket.on_grant = granted.set
        try:
            async with asyncio.timeout(self._timeout):
                await granted.wait()
        except TimeoutError:
            if not ticket.granted:  # else the slot came in the same moment, and is used
                shedding = self.shared.limit is not None
                raise QueueTimeout(self._timeout, shedding=shedding) from None


class TierQueues:
    """A queue for each tier; pass-through models have none."""

    def __init__(self, tiers: Mapping[str, TierSettings]) -> None:
        self._local = SharedLimit()
        # A removed tier keeps its queue: an exchange that began with the tier may still run.
        self._queues: dict[str, TierQueue] = {}
        self._tier_names: list[str] = []  # the tiers of the present settings
        self.adapt(tiers)

    def adapt(self, tiers: Mapping[str, TierSettings]) -> None:
        """Use other tiers or limits from now on. Requests that run or wait are not disturbed."""
        for name, tier in tiers.items():
            queue = self._queues.get(name)
            if queue is None or queue.local != tier.local:
                self._queues[name] = TierQueue(tier, self._local if tier.local else None)
            else:
                queue.adapt(tier)
        self._tier_names = list(tiers)

    def __getitem__(self, tier: str) -> TierQueue | None:
        return self._queues.get(tier)

    @asynccontextmanager
    async def place(self, tier: str, session: str, key: str) -> AsyncIterator[None]:
        """Hold a slot of a tier, after waiting for it. Raises :class:`QueueTimeout`.

        A pass-through model has no queue, so that its requests hold nothing and never wait.
        """
        queue = self._queues.get(tier)
        if queue is None:
            yield
            return
        ticket = None if queue.take() else await queue.enter(session, key)
        try:
            yield
        finally:
            queue.leave(ticket)

    def shed(self, on: bool) -> None:
        """Let all local tiers together take only one request at a time, or end that."""
        self._local.set_limit(1 if on else None)

    def readings(self) -> list[tuple[str, int, int]]:
        """Return each tier's name, its slots in use, and the number of waiting requests."""
        queues = ((name, self._queues[name]) for name in self._tier_names)
        return [(name, queue.in_use, queue.waiting) for name, queue in queues]
