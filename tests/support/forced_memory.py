"""A memory reader whose level the test sets, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import Any

from mlx_stack_proxy.memory_pressure.pressure import Level, Reading
from mlx_stack_proxy.memory_pressure.probe import MemoryProbe
from mlx_stack_proxy.settings import MemoryPressureSettings

HOUR = 3600.0


class ForcedMemory:
    """A memory reader, its clock and its probe.

    The probe's interval is an hour, so that it looks only at its start and in :meth:`shows`.
    """

    name = "forced"

    def __init__(self, **settings: Any) -> None:
        self.reading = Reading(level=Level.NORMAL)
        self.error: Exception | None = None
        self.now = 1000.0
        self.rules = {"interval_seconds": HOUR, **settings}
        self.looks: asyncio.Queue[Reading] = asyncio.Queue()  # the readings that the probe took
        self.closed = False
        self.probe = MemoryProbe(MemoryPressureSettings(**self.rules), self, lambda: self.now)

    async def read(self) -> Reading:
        self.looks.put_nowait(self.reading)
        if self.error is not None:
            raise self.error
        return self.reading

    async def close(self) -> None:
        self.closed = True

    async def shows(self, level: Level, *, after: float = 0.0) -> None:
        """Move the clock by ``after`` seconds, set the level, and have the probe look at it."""
        self.reading = Reading(level=level)
        self.now += after
        await self.probe.look()  # this may join a look that began before the change
        await self.probe.look()
