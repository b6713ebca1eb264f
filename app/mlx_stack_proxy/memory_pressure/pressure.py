"""Memory pressure: turns readings into a level that rises at once and falls step by step.

:func:`assess` turns one reading into a level: the highest of its figures' levels. :class:`Gauge`
damps that level over time: it rises with the first high reading, and falls one step after
``HOLD_SECONDS`` of lower readings. Readings and times are passed in: ``readers.py`` takes the
readings, ``probe.py`` drives the gauge. docs/memory-pressure.md describes a level's effects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from msgspec import Struct

from ..settings import MemoryPressureSettings


class Level(IntEnum):
    """How short memory is. The number is the metric's value; headers and events use the word."""

    NORMAL = 0
    WARNING = 1
    CRITICAL = 2

    @property
    def word(self) -> str:
        return self.name.lower()


LEVELS = {level.word: level for level in Level}


class Reading(Struct, frozen=True):
    """One reading's figures; a figure that the source lacks is None."""

    level: Level | None = None  # as reported by the OS, or by another `pressure --serve`
    some: float | None = None  # percent of the last 10 s in which some tasks waited for memory
    full: float | None = None  # percent of the last 10 s in which all tasks did
    limit_used: float | None = None  # share of a cgroup's limit that can't be freed, 0 to 1
    swap: Mapping[str, int] = {}  # bytes by counter; only growth counts

    def as_dict(self) -> dict[str, Any]:
        """Return the reading for JSON, without missing figures."""
        level = None if self.level is None else self.level.word
        figures = {name: getattr(self, name) for name in ("some", "full", "limit_used")}
        fields = {"level": level, **figures, "swap": dict(self.swap) or None}
        return {name: value for name, value in fields.items() if value is not None}


class Pressure(Struct, frozen=True):
    """The damped level of a :class:`Gauge`, and its cause."""

    level: Level = Level.NORMAL
    cause: str = ""  # why the level rose: `system`, `stalls`, `limit` or `swap`; "" while normal
    since: float | None = None  # when the level left normal, on the probe's clock
    sustained: bool = False  # whether it has been above normal for `sustained_seconds`


NO_PRESSURE = Pressure()
# Thresholds. Android's lmkd uses a similar one for `some`; systemd-oomd kills at 60 % of `full`.
# Under a limit, 10 % are room for one more long prompt; at 97 % the next allocation may be the
# last. A machine whose swap grows 8 times as fast does little else.
SOME_WARNING, FULL_CRITICAL = 10.0, 30.0  # percent of 10 s
LIMIT_WARNING, LIMIT_CRITICAL = 0.9, 0.97
SWAP_CRITICAL = 8  # multiples of the growth that warns
HOLD_SECONDS = 30.0  # of lower readings until the level falls by one step: six readings


class Gauge:
    """Turns successive readings into a damped level."""

    def __init__(self, settings: MemoryPressureSettings) -> None:
        self._settings = settings
        self.pressure = NO_PRESSURE  # the damped level
        self.raw: tuple[Level, str] = (Level.NORMAL, "")  # the last reading's own level and cause
        self._swap: tuple[float, Mapping[str, int]] | None = None  # the last counters, and when
        # When a reading last reached the level, or the level last fell.
        self._reached = 0.0

    def take(self, reading: Reading | None, now: float) -> Pressure:
        """Process the next reading and return the damped level.

        ``reading``: None if there is no valid reading, which counts as a normal one. ``now``:
        seconds on a monotonic clock.
        """
        if reading is None:
            self.raw = (Level.NORMAL, "")
        else:
            growth = self._swap_growth(reading, now)
            swap_warning = self._settings.thresholds.swap_warning_bytes_per_second
            self.raw = assess(reading, growth, swap_warning)
        level, cause = self.raw
        old = self.pressure
        if level >= old.level:
            self._reached = now
        elif now - self._reached >= HOLD_SECONDS:
            level = Level(old.level - 1)  # only one step; the next one takes as long again
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
        """Return the fastest swap counter's growth since the last reading, in bytes a second."""
        previous, self._swap = self._swap, (now, reading.swap)
        if previous is None or now <= previous[0]:
            return 0.0
        growths = [
            reading.swap[name] - old for name, old in previous[1].items() if name in reading.swap
        ]
        return max(growths, default=0) / (now - previous[0])


def assess(reading: Reading, growth: float, swap_warning: float) -> tuple[Level, str]:
    """Return one reading's level and its cause.

    ``growth``: the swap's, in bytes a second; ``swap_warning``: the growth that warns.
    """
    levels = (
        (reading.level or Level.NORMAL, "system"),
        (_level(reading.some, SOME_WARNING, math.inf), "stalls"),
        (_level(reading.full, math.inf, FULL_CRITICAL), "stalls"),
        (_level(reading.limit_used, LIMIT_WARNING, LIMIT_CRITICAL), "limit"),
        (_level(growth, swap_warning, SWAP_CRITICAL * swap_warning), "swap"),
    )
    level, cause = max(levels, key=lambda entry: entry[0])  # the first of equal levels
    return level, cause if level else ""


def _level(value: float | None, warning: float, critical: float) -> Level:
    if value is None or value < min(warning, critical):
        return Level.NORMAL
    return Level.CRITICAL if value >= critical else Level.WARNING
