"""Waiting for a tier's slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Literal

from ..settings import TierSettings
from .fair_queue import FairQueue, Ticket, Together


class QueueTimeout(Exception):
    """No slot came free within ``queue_timeout``.

    ``seconds``: how long was waited. ``reason``: ``memory_pressure`` where the local tiers are
    held to one request, else ``tier_busy``.
    """

    def __init__(self, seconds: float, *, shedding: bool = False) -> None:
        self.seconds = seconds
        self.reason: Literal["memory_pressure", "tier_busy"] = (
            "memory_pressure" if shedding else "tier_busy"
        )
        why = "; memory is short, and local tiers take one request at a time" if shedding else ""
        super().__init__(f"no free place within {seconds:g} s{why}")


class _Waiting(Ticket):
    """``future``: only while it waits."""

    __slots__ = ("future",)

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.future: asyncio.Future[None] | None = None

    def grant(self) -> None:
        super().grant()
        if self.future is not None and not self.future.done():
            self.future.set_result(None)


class TierQueue(FairQueue):
    """One tier's slots and the line before them. ``together``: its limit with other tiers."""

    def __init__(self, tier: TierSettings, together: Together | None = None) -> None:
        super().__init__(tier.max_concurrency, together)
        self.local = together is not None
        self._timeout = tier.queue_timeout

    def adapt(self, tier: TierSettings) -> None:
        """Take the tier's new limits; who waits already, waits as long as it was told."""
        self._timeout = tier.queue_timeout
        self.set_slots(tier.max_concurrency)

    async def enter(self, session: str) -> Ticket:
        """Wait for a slot; :meth:`leave` gives it back. Raises :class:`QueueTimeout`."""
        ticket = _Waiting(session)
        self.join(ticket)
        if not ticket.granted:
            try:
                await self._wait(ticket)
            except BaseException:
                self.leave(ticket)
                raise
        return ticket

    async def _wait(self, ticket: _Waiting) -> None:
        ticket.future = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout):
                await ticket.future
        except TimeoutError:
            if not ticket.granted:  # a slot that came in the same moment is taken
                shedding = self.together.limit is not None
                raise QueueTimeout(self._timeout, shedding=shedding) from None


class TierQueues:
    """A queue for each tier; pass-through models have none."""

    def __init__(self, tiers: Mapping[str, TierSettings]) -> None:
        self._local = Together()
        # Once a tier's queue, always: an exchange may be on its way that began with that tier.
        self._queues: dict[str, TierQueue] = {}
        self._shown: list[str] = []
        self.adapt(tiers)

    def adapt(self, tiers: Mapping[str, TierSettings]) -> None:
        """Take other tiers, or others' limits. What runs and waits goes on."""
        for name, tier in tiers.items():
            queue = self._queues.get(name)
            if queue is None or queue.local != tier.local:
                self._queues[name] = TierQueue(tier, self._local if tier.local else None)
            else:
                queue.adapt(tier)
        self._shown = list(tiers)

    def __getitem__(self, tier: str) -> TierQueue | None:
        return self._queues.get(tier)

    @asynccontextmanager
    async def place(self, tier: str, session: str) -> AsyncIterator[None]:
        """A place on a tier, waited for. Raises :class:`QueueTimeout`."""
        queue = self._queues.get(tier)
        if queue is None:
            yield
            return
        ticket = await queue.enter(session)
        try:
            yield
        finally:
            queue.leave(ticket)

    def shed(self, on: bool) -> None:
        """Let the local tiers take one request at a time, all of them together; or no longer."""
        self._local.set_limit(1 if on else None)

    def readings(self) -> list[tuple[str, int, int]]:
        """Each tier with how many of its slots are in use, and how many wait."""
        found = ((name, self._queues[name]) for name in self._shown)
        return [(name, queue.in_use, queue.waiting) for name, queue in found]
