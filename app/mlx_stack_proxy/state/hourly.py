"""What happened, by the hour: rows of plain counters, which only grow by what is added.

A row belongs to an hour, an agent and a tier, and holds a number for each counter's name. A name
may have a label behind a colon: ``failed:timeout``. Agents and labels are bounded: what is too much
counts for the agent, or under the label, ``other``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

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
    for key, counts in deltas.items():
        add(into.setdefault(key, {}), counts)


def add(row: dict[str, float], counts: Counts) -> dict[str, float]:
    """Add to a row; what is one label too many counts for all of its name."""
    for given, number in counts.items():
        name = given if given in row or len(row) < MOST_COUNTERS else _unlabelled(given)
        row[name] = row.get(name, 0) + number
    return row


def _unlabelled(name: str) -> str:
    bare, labelled, _ = name.partition(":")
    return f"{bare}:{OTHER}" if labelled else name


class Agents:
    """The agents that a process has counted for in this hour and the one before."""

    def __init__(self) -> None:
        self._of: dict[int, set[str]] = {}

    def bounded(self, key: HourKey) -> HourKey:
        """The same; what is one agent too many counts for all of these."""
        agents = self._of.get(key.hour)
        if agents is None:
            agents = set()
            self._of = {key.hour: agents, key.hour - 1: self._of.get(key.hour - 1, set())}
        return key._replace(agent=bounded(key.agent, agents)) if key.agent else key
