"""What the agents themselves saw, response by response, and the report beside it.

It reads headers, statuses and usage as any client can; nothing of the proxy's own code is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Seen:
    """One response. ``said``: our headers, in lower case without their prefix.

    ``right``: a whole reply came.
    """

    said: Mapping[str, str]
    right: bool

    @property
    def is_exchange(self) -> bool:
        """Whether it was let in; a proxy that stops refuses before."""
        return "attempts" in self.said


def counts(seen: Iterable[Seen]) -> Counter[str]:
    """The report's figures as these responses prove them."""
    found: Counter[str] = Counter()
    for one in seen:
        if one.is_exchange:
            found["requests"] += 1
            found["attempts"] += int(one.said["attempts"])
            found["turns" if one.right else "errors"] += 1
        if one.right:
            found[_way(one)] += 1
        if one.said.get("loop", "").startswith("circuit_break"):
            found["loops_broken"] += 1
    return found


def _way(one: Seen) -> str:
    if int(one.said["attempts"]) > 1:
        return "put_right"
    repairs = one.said.get("repairs", "")
    if not repairs:
        return "right_at_once"
    return "found_in_text" if "rescued" in repairs.split(",") else "repaired"


EXACT = ("requests", "turns", "right_at_once", "repaired", "found_in_text", "attempts")
PUT_RIGHT = ("confirmed", "retried_right", "escalated_right")


@dataclass(frozen=True)
class Row:
    what: str
    seen: int
    told: int

    @property
    def holds(self) -> bool:
        return self.seen == self.told

    def __str__(self) -> str:
        mark = "ok" if self.holds else "WRONG"
        return f"{self.what:<44} {self.seen:>10,} {self.told:>10,}  {mark}"


def compared(report: Mapping[str, Any], agent: str, seen: Mapping[str, int]) -> Iterator[Row]:
    """What an agent saw, and what the proxy's report says of it, number by number."""
    told = report["by_agent"].get(agent, {})
    for name in EXACT:
        yield Row(f"{agent}: {name}", seen[name], told.get(name, 0))
    # Of errors, the report tells those of the client's own making apart.
    errors = told.get("errors", 0) + told.get("client_errors", 0)
    yield Row(f"{agent}: errors", seen["errors"], errors)
    put_right = sum(told.get(name, 0) for name in PUT_RIGHT)
    yield Row(f"{agent}: put right by asking again", seen["put_right"], put_right)
