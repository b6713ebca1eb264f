"""Memory pressure: from readings to a level that rises at once and falls step by step.

Pure: readings and times are passed in. Where the readings come from is ``proxy/memory_readers.py``;
what follows from the level is said in ``docs/memory-pressure.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any

from ..frozen import frozen
from ..settings import MemoryPressureSettings, PressureThresholds


class Level(IntEnum):
    """``word`` is what headers, events and other machines call it; the number is the metric's."""

    NORMAL = 0
    WARNING = 1
    CRITICAL = 2

    @property
    def word(self) -> str:
        return self.name.lower()


LEVELS = {level.word: level for level in Level}


@frozen
class Reading:
    """What one look at the memory gave; None where the source doesn't tell.

    - ``level``: as the operating system, or another machine's ``pressure --serve``, calls it.
    - ``some``, ``full``: percent of the last 10 s in which some, or all, tasks waited for memory.
    - ``limit_used``: how much of a cgroup's limit is in use and can't be given back, 0 to 1.
    - ``swap``: counters in bytes, by name; what matters is how fast they grow.
    """

    level: Level | None = None
    some: float | None = None
    full: float | None = None
    limit_used: float | None = None
    swap: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As JSON: only what the source tells."""
        level = None if self.level is None else self.level.word
        rest = {name: getattr(self, name) for name in ("some", "full", "limit_used")}
        told = {"level": level, **rest, "swap": dict(self.swap) or None}
        return {name: value for name, value in told.items() if value is not None}


@frozen
class Pressure:
    """How it stands.

    ``cause``: what the level rose for: ``system``, ``stalls``, ``limit`` or ``swap``; "" while it
    is normal. ``since``: when it left normal, on the probe's clock. ``sustained``: it has lasted
    for ``sustained_seconds``.
    """

    level: Level = Level.NORMAL
    cause: str = ""
    since: float | None = None
    sustained: bool = False


NO_PRESSURE = Pressure()


class Gauge:
    """Makes a level of the readings. ``pressure`` is damped; ``raw`` is the last reading's own."""

    def __init__(self, settings: MemoryPressureSettings) -> None:
        self._settings = settings
        self.pressure = NO_PRESSURE
        self.raw: tuple[Level, str] = (Level.NORMAL, "")
        self._swap: tuple[float, Mapping[str, int]] | None = None
        self._reached = 0.0  # when a reading last was as high as the level

    def take(self, reading: Reading | None, now: float) -> Pressure:
        """Go on with a reading; None: there is none that still counts, which is as good as normal.

        ``now``: seconds on any clock that never goes back.
        """
        if reading is None:
            self.raw = (Level.NORMAL, "")
        else:
            growth = self._swap_growth(reading, now)
            self.raw = assess(reading, growth, self._settings.thresholds)
        level, cause = self.raw
        old = self.pressure
        if level >= old.level:
            self._reached = now
        elif now - self._reached >= self._settings.hold_seconds:
            level = Level(old.level - 1)  # one step, however good it looks; the next takes as long
            self._reached = now
        else:
            level = old.level
        self.pressure = self._at(level, cause if level > old.level else old.cause, now)
        return self.pressure

    def _at(self, level: Level, cause: str, now: float) -> Pressure:
        if level is Level.NORMAL:
            return NO_PRESSURE
        since = now if self.pressure.since is None else self.pressure.since
        sustained = now - since >= self._settings.sustained_seconds
        return Pressure(level, cause, since, sustained)

    def _swap_growth(self, reading: Reading, now: float) -> float:
        """Bytes a second that went to the swap since the reading before, by its fastest counter."""
        before, self._swap = self._swap, (now, reading.swap)
        if before is None or now <= before[0]:
            return 0.0
        grown = [
            reading.swap[name] - old for name, old in before[1].items() if name in reading.swap
        ]
        return max(grown, default=0) / (now - before[0])


def assess(reading: Reading, growth: float, limits: PressureThresholds) -> tuple[Level, str]:
    """The level of one reading, and its cause. ``growth``: of the swap, in bytes a second."""
    found = (
        (reading.level or Level.NORMAL, "system"),
        (_level(reading.some, limits.some_warning_percent, None), "stalls"),
        (_level(reading.full, None, limits.full_critical_percent), "stalls"),
        (
            _level(reading.limit_used, limits.limit_warning_share, limits.limit_critical_share),
            "limit",
        ),
        (
            _level(
                growth, limits.swap_warning_bytes_per_second, limits.swap_critical_bytes_per_second
            ),
            "swap",
        ),
    )
    level, cause = max(found, key=lambda entry: entry[0])  # the first of the highest
    return level, cause if level else ""


def _level(value: float | None, warning: float | None, critical: float | None) -> Level:
    if value is None:
        return Level.NORMAL
    if critical is not None and value >= critical:
        return Level.CRITICAL
    return Level.WARNING if warning is not None and value >= warning else Level.NORMAL
