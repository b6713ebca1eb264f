"""Waiting for a tier's slot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ..core.fair_queue import FairQueue, Ticket
from ..settings import TierSettings


class QueueTimeout(Exception):
    """No slot came free within ``queue_timeout``. ``seconds``: how long was waited."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"no free place within {seconds:g} s")


class _Waiting(Ticket):
    __slots__ = ("future",)

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.future: asyncio.Future[None] | None = None


class TierQueue:
    """One tier's slots and the line before them."""

    def __init__(self, tier: TierSettings) -> None:
        self._queue = FairQueue(tier.max_concurrency)
        self._timeout = tier.queue_timeout

    @property
    def depth(self) -> int:
        return self._queue.waiting

    @property
    def in_flight(self) -> int:
        return self._queue.in_use

    async def enter(self, session: str) -> Ticket:
        """Wait for a slot; :meth:`leave` gives it back. Raises :class:`QueueTimeout`."""
        ticket = _Waiting(session)
        self._queue.enter(ticket)
        if not ticket.granted:
            try:
                await self._wait(ticket)
            except BaseException:
                self.leave(ticket)
                raise
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Give a slot back; whoever is next gets it."""
        for granted in self._queue.leave(ticket):
            future = getattr(granted, "future", None)
            if future is not None and not future.done():
                future.set_result(None)

    async def _wait(self, ticket: _Waiting) -> None:
        ticket.future = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout):
                await ticket.future
        except TimeoutError:
            if not ticket.granted:  # a slot that came in the same moment is taken
                raise QueueTimeout(self._timeout) from None


class TierQueues:
    """A queue for each tier; pass-through models have none."""

    def __init__(self, tiers: Mapping[str, TierSettings]) -> None:
        self._queues = {name: TierQueue(tier) for name, tier in tiers.items()}

    def __getitem__(self, tier: str) -> TierQueue | None:
        return self._queues.get(tier)

    def readings(self) -> list[tuple[str, int, int]]:
        """Each tier with how many of its slots are in use, and how many wait."""
        return [(name, queue.in_flight, queue.depth) for name, queue in self._queues.items()]
