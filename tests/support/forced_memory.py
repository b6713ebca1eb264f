"""A memory whose level a test sets, and a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import Any

from mlx_stack_proxy.memory_pressure.pressure import Level, Reading
from mlx_stack_proxy.memory_pressure.probe import MemoryProbe
from mlx_stack_proxy.settings import MemoryPressureSettings

HOUR = 3600.0


class ForcedMemory:
    """A reader and its clock. The probe looks when :meth:`shows` says so, not by itself."""

    name = "forced"

    def __init__(self, **settings: Any) -> None:
        self.reading = Reading(level=Level.NORMAL)
        self.error: Exception | None = None
        self.now = 1000.0
        self.rules = {"interval_seconds": HOUR, **settings}
        self.looks: asyncio.Queue[Reading] = asyncio.Queue()  # that were made
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
        """The memory is like this, so many seconds later, and has been looked at."""
        self.reading = Reading(level=level)
        self.now += after
        await self.probe.look()  # may share a look that was on its way, of the memory before
        await self.probe.look()
