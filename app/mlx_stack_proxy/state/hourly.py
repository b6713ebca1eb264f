"""Counters of what happened in each hour, from which the report is made.

A row belongs to an hour, an agent and a tier, and holds a number for each counter's name. Numbers
are only ever added to it. A name may have a label after a colon: ``failed:timeout``. Agents and
labels are bounded: a further agent counts for the agent ``other``, a further label under ``other``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

HOUR: Final = 3600.0
MAX_AGENTS: Final = 100  # in an hour
MAX_COUNTERS: Final = 200  # in a row; further labels of a name count as `NAME:other`
OTHER: Final = "other"

Counts = Mapping[str, float]


class HourKey(NamedTuple):
    """The key of a row of counters."""

    hour: int  # hours since 1970
    agent: str  # "": the process's own counters, which belong to no request
    tier: str  # "": counters that belong to no tier


Deltas = Mapping[HourKey, Counts]


def hour_of(seconds: float) -> int:
    """Return a time's hour, in hours since 1970. ``seconds``: since 1970."""
    return int(seconds // HOUR)


def bounded(agent: str, agents: set[str]) -> str:
    """Return the agent and add it to ``agents``; return ``other`` if there are too many agents."""
    if agent not in agents:
        agent = agent if len(agents) < MAX_AGENTS else OTHER
        agents.add(agent)
    return agent


def merge(into: dict[HourKey, dict[str, float]], deltas: Deltas) -> None:
    """Add the rows of ``deltas`` to the rows of ``into``."""
    for key, counts in deltas.items():
        add(into.setdefault(key, {}), counts)


def add(row: dict[str, float], counts: Counts) -> dict[str, float]:
    """Add ``counts`` to ``row``; in a full row, new labels of a name count as ``NAME:other``."""
    for counter, number in counts.items():
        name = counter if counter in row or len(row) < MAX_COUNTERS else _unlabelled(counter)
        row[name] = row.get(name, 0) + number
    return row


def _unlabelled(name: str) -> str:
    bare, labelled, _ = name.partition(":")
    return f"{bare}:{OTHER}" if labelled else name


class Agents:
    """The agents for which a process has counted in this hour and in the one before.

    Rows beyond ``MAX_AGENTS`` of an hour count for the agent ``other``, before they are stored.
    """

    def __init__(self) -> None:
        self._by_hour: dict[int, set[str]] = {}

    def bounded(self, key: HourKey) -> HourKey:
        """Return ``key``, with the agent ``other`` if its hour already has too many agents."""
        agents = self._by_hour.get(key.hour)
        if agents is None:
            agents = set()
            self._by_hour = {key.hour: agents, key.hour - 1: self._by_hour.get(key.hour - 1, set())}
        agent = bounded(key.agent, agents) if key.agent else ""
        return key if agent == key.agent else key._replace(agent=agent)
