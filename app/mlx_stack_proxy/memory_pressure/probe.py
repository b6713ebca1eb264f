"""Reads the memory every few seconds in a background task, and reports changes of the level.

Each step awaits a reader (``readers.py``) and passes the reading to the gauge (``pressure.py``),
which computes the level. A reader that raises or hangs affects no exchange: its last reading stays
valid for a while, and then the level falls to normal, step by step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from .. import log, tasks
from ..settings import MemoryPressureSettings
from .pressure import NO_PRESSURE, Gauge, Level, Pressure, Reading
from .readers import MemoryReader

STALE_SECONDS = 15.0  # how long a reading stays valid, at least
STALE_INTERVALS = 3  # the same in intervals between readings; the longer time counts
SHORTEST_PAUSE = 0.1  # seconds between two readings, each of which takes up to 1 ms of CPU
CLOSE_SECONDS = 1.0  # how long `close` waits for a running reading

OnChange = Callable[[Pressure, Pressure], Awaitable[None]]


class MemoryProbe:
    """Keeps the machine's memory pressure up to date for all exchanges.

    ``reader``: None if this machine reports nothing; the level then stays normal. ``clock``:
    monotonic seconds.
    """

    def __init__(
        self,
        settings: MemoryPressureSettings,
        reader: MemoryReader | None,
        clock: Callable[[], float],
    ) -> None:
        self.pressure = NO_PRESSURE  # replaced after each reading, never changed in place
        self.on_change: OnChange | None = None  # awaited with (before, after) on a change of level
        self.trouble: str | None = None  # why there is no valid reading; None if there is one
        self.reading: Reading | None = None  # the last reading, even if it is no longer valid
        self._settings = settings
        self._reader = reader if settings.enabled else None
        self._clock = clock
        self._gauge = Gauge(settings)
        self._stale_after = max(STALE_SECONDS, STALE_INTERVALS * settings.interval_seconds)
        self._read_at = clock()  # the time of the last reading
        self._looking: asyncio.Future[Reading] | None = None  # the running reading
        self._task: asyncio.Task[None] | None = None

    @property
    def level(self) -> Level | None:
        """The level as a metric; None if unknown, because 0 would mean that all is well."""
        unknown = self._reader is None or (self.trouble is not None and not self.pressure.level)
        return None if unknown else self.pressure.level

    @property
    def raw(self) -> tuple[Level, str]:
        """The last reading's own level and cause, undamped."""
        return self._gauge.raw

    @property
    def source(self) -> str | None:
        return None if self._reader is None else self._reader.name

    def start(self) -> None:
        """Start reading the memory, in the running event loop."""
        self._read_at = self._clock()
        if self._reader is not None:
            self._task = asyncio.create_task(self._run())
        elif self._settings.enabled and self._settings.source != "off":
            log.get().info(
                "memory_pressure_unknown", why="nothing here tells it", taken_as="normal"
            )

    async def close(self) -> None:
        await tasks.end(self._task)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking}, timeout=CLOSE_SECONDS)
        if self._reader is not None:
            await self._reader.close()

    def shown(self) -> dict[str, Any]:
        """Return the pressure as JSON for an operator; ``seconds``: since the level left normal."""
        since = self.pressure.since
        return {
            "level": self.pressure.level.word,
            "cause": self.pressure.cause or None,
            "seconds": None if since is None else round(self._clock() - since, 1),
            "sustained": self.pressure.sustained,
            "source": self.source,
            "trouble": self.trouble,
        }

    async def _run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(max(self._settings.interval_seconds, SHORTEST_PAUSE))

    async def look(self) -> None:
        """Read once, and report a change of the level. Raises nothing."""
        if self._reader is None:
            return
        try:
            reading, why = await self._read(self._reader)
            self._take(reading, why)
            old, self.pressure = self.pressure, self._gauge.pressure
            if old.level is not self.pressure.level:
                await self._report_change(old, self.pressure)
        except Exception as error:  # for example figures of an unexpected form
            log.fault("memory_pressure_fault", error)

    async def _read(self, reader: MemoryReader) -> tuple[Reading | None, str]:
        """Return a reading, or None and the reason.

        If a reading hangs, the next call waits for it again and starts no second one.
        """
        looking = self._looking = self._looking or asyncio.ensure_future(reader.read())
        await asyncio.wait({looking}, timeout=self._settings.interval_seconds)
        if not looking.done():
            return None, "no answer in time"
        self._looking = None
        if (error := looking.exception()) is None:
            return looking.result(), ""
        return None, f"{type(error).__name__}: {error}"[:200].rstrip(": ")

    def _take(self, reading: Reading | None, why: str) -> None:
        now = self._clock()
        if reading is not None:
            self._read_at = now
            self.reading = reading
            if self.trouble is not None:
                log.get().info("memory_pressure_read_again", source=self.source)
            self.trouble = None
        elif self.reading is not None and now - self._read_at < self._stale_after:
            return  # the last reading is still valid
        else:
            if self.trouble is None:  # log only the first failure until readings succeed again
                old = {"seconds": round(now - self._read_at, 1), "taken_as": "normal"}
                log.get().warning("memory_pressure_stale", source=self.source, why=why, **old)
            self.trouble = why
        self._gauge.take(reading, now)

    async def _report_change(self, old: Pressure, new: Pressure) -> None:
        write_log = log.get().warning if new.level > old.level else log.get().info
        levels = {"from": old.level.word, "to": new.level.word}
        write_log("pressure_changed", **levels, cause=new.cause or old.cause)
        if self.on_change is not None:
            await self.on_change(old, new)
