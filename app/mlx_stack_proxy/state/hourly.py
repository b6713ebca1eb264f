"""What happened, by the hour: rows of plain counters, which only grow by what is added.

A row belongs to an hour, an agent and a tier, and holds a number for each counter's name. A name
may have a label behind a colon: ``failed:timeout``. Agents and labels are bounded: what is too much
counts for the agent, or under the label, ``other``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from .table import Table

HOUR: Final = 3600.0
MOST_AGENTS: Final = 100  # in an hour
MOST_COUNTERS: Final = 200  # in a row; further labels of a name are one
OTHER: Final = "other"

Counts = Mapping[str, float]


class HourKey(NamedTuple):
    """``hour``: hours since 1970. ``agent``, ``tier``: "" for what belongs to none."""

    hour: int
    agent: str
    tier: str


Deltas = Mapping[HourKey, Counts]


def hour_of(seconds: float) -> int:
    return int(seconds // HOUR)


def bounded(agent: str, agents: set[str]) -> str:
    """The agent, which joins ``agents``; ``other`` where these are many."""
    if agent not in agents:
        agent = agent if len(agents) < MOST_AGENTS else OTHER
        agents.add(agent)
    return agent


def merge(into: dict[HourKey, dict[str, float]], deltas: Deltas) -> None:
    """Add deltas to others that are still to be stored."""
    for key, counts in deltas.items():
        row = into.setdefault(key, {})
        for name, number in counts.items():
            row[name] = row.get(name, 0) + number


class Hourly:
    """The rows that a process holds in memory.

    ``oldest``: the first hour whose rows are here. What belongs to an earlier one, because a clock
    was put back, counts for that.
    """

    def __init__(self) -> None:
        self.rows: Table[HourKey, dict[str, float]] = Table()
        self.oldest = 0
        self._agents: dict[int, set[str]] = {}

    def add(self, deltas: Deltas) -> None:
        for key, counts in deltas.items():
            self._add(key, counts)

    def restore(self, rows: Mapping[HourKey, Counts], oldest: int) -> None:
        """Take over what was stored of the hours from ``oldest`` on."""
        self.oldest = oldest
        self.rows.restore((key, dict(counts)) for key, counts in rows.items())
        for key in rows:
            self._agents.setdefault(key.hour, set()).add(key.agent)

    def find(self, first: int, last: int) -> dict[HourKey, dict[str, float]]:
        """The rows of these hours and those between them."""
        return {key: dict(row) for key, row in self.rows.items() if first <= key.hour <= last}

    def forget(self, before: int) -> None:
        """Drop the rows of earlier hours, but for those that are still to be written down."""
        if before <= self.oldest:
            return
        kept = self.rows.changed
        for key in [key for key in self.rows if key.hour < before and key not in kept]:
            del self.rows[key]
            del kept[key]
        for hour in [hour for hour in self._agents if hour < before]:
            del self._agents[hour]
        self.oldest = min([before, *(key.hour for key in kept)])

    def _add(self, key: HourKey, counts: Counts) -> None:
        hour = max(key.hour, self.oldest)
        agents = self._agents.setdefault(hour, set())
        key = HourKey(hour, bounded(key.agent, agents) if key.agent else "", key.tier)
        row = self.rows.get(key, {})
        for given, number in counts.items():
            name = given if given in row or len(row) < MOST_COUNTERS else _unlabelled(given)
            row[name] = row.get(name, 0) + number
        self.rows[key] = row


def _unlabelled(name: str) -> str:
    bare, labelled, _ = name.partition(":")
    return f"{bare}:{OTHER}" if labelled else name
