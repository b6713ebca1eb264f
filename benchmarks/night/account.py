"""What the agents themselves saw, response by response: to be compared with the report.

It reads headers, statuses and usage as any client can; nothing of the proxy's own code is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """One response. ``said``: our headers, in lower case without their prefix.

    ``right``: a whole reply came. ``tokens``: read and written, as its usage says.
    """

    agent: str
    status: int
    said: Mapping[str, str]
    right: bool
    tokens: tuple[int, int] = (0, 0)

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
            found["tokens_in"] += one.tokens[0]
            found["tokens_out"] += one.tokens[1]
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
