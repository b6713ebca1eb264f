"""What the agents themselves saw, response by response, and the report beside it.

It reads headers, statuses and usage as any client can; nothing of the proxy's own code is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

EXACT = ("requests", "turns", "right_at_once", "repaired", "found_in_text", "attempts")
PUT_RIGHT = ("confirmed", "retried_right", "escalated_right")


def counts(said: Mapping[str, str], right: bool) -> Counter[str]:
    """The report's figures as one response proves them.

    ``said``: our headers, in lower case without their prefix. ``right``: a whole reply came.
    """
    found: Counter[str] = Counter()
    if "attempts" in said:  # it was let in; a proxy that stops refuses before
        found["requests"] += 1
        found["attempts"] += int(said["attempts"])
        found["turns" if right else "errors"] += 1
    if right:
        repairs = said.get("repairs", "")
        if int(said["attempts"]) > 1:
            found["put_right"] += 1
        elif not repairs:
            found["right_at_once"] += 1
        else:
            found["found_in_text" if "rescued" in repairs.split(",") else "repaired"] += 1
    if said.get("loop", "").startswith("circuit_break"):
        found["loops_broken"] += 1
    return found


def compared(
    report: Mapping[str, Any], agent: str, seen: Mapping[str, int]
) -> Iterator[tuple[str, int, int]]:
    """Each number's name, what an agent saw, and what the proxy's report says of it."""
    told = report["by_agent"].get(agent, {})
    sums = {name: (name,) for name in EXACT}
    # Of errors, the report tells those of the client's own making apart.
    sums |= {"errors": ("errors", "client_errors"), "put_right": PUT_RIGHT}
    for name, parts in sums.items():
        what = "put right by asking again" if name == "put_right" else name
        yield f"{agent}: {what}", seen[name], sum(told.get(part, 0) for part in parts)
