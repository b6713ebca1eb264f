"""A night to look at: hours of counters and events as a proxy writes them, for pictures and tests.

The figures come from a fixed seed; the exchanges that can be opened were really made.
"""

from __future__ import annotations

import hashlib
import random
from itertools import pairwise
from typing import Any

from mlx_stack_proxy.state.hourly import HOUR, HourKey, hour_of
from mlx_stack_proxy.state.store import Store
from tests.support.storing import add_counts, add_events

Json = dict[str, Any]
AGENTS = ("claude-code", "codex", "opencode")
HOURS = 12
# Of a hundred replies: how each came to be right.
WAYS = {
    "right_at_once": 78,
    "repaired": 9,
    "found_in_text": 4,
    "retried_right": 6,
    "escalated_right": 3,
}


def _session(agent: str, chance: random.Random) -> str:
    """One of an agent's four."""
    name = f"{agent} {chance.randrange(4)}"
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


async def put_night(store: Store, now: float) -> None:
    """Twelve hours that end now."""
    chance = random.Random(7)
    last = hour_of(now)
    rows: dict[HourKey, dict[str, float]] = {}
    for hour in range(last - HOURS, last + 1):
        for agent in AGENTS:
            busy = chance.randint(6, 40) if agent != "opencode" or hour % 3 else 0
            for tier, share in (("fast", 0.8), ("standard", 0.2)):
                if counts := _counts(chance, round(busy * share)):
                    rows[HourKey(hour, agent, tier)] = counts
    await add_counts(store, rows)
    await add_events(store, sorted(_events(chance, now), key=lambda event: event["time"]))


def _counts(chance: random.Random, turns: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for way in chance.choices([*WAYS], [*WAYS.values()], k=turns):
        found[way] = found.get(way, 0) + 1
    errors = int(turns > 18 and chance.random() < 0.3)
    if not turns:
        return {}
    found |= {"turns": turns, "requests": turns + errors, "errors": errors}
    found |= {"attempts": turns + 3, "model_seconds": turns * chance.uniform(2, 6)}
    found |= {"errors:all_tiers_failed": errors}
    wrong = found.get("retried_right", 0) + found.get("escalated_right", 0) + errors
    found |= {"failed": wrong, "failed:tool_validation_failure": wrong}
    found |= {"invalid_calls": wrong, "invalid_calls:write_file": wrong}
    found |= {"calls:write_file": 2 * wrong + 1}
    tokens = {"tokens_in": turns * chance.randint(900, 4000), "tokens_out": turns * 210}
    return {**found, **tokens, "calls": turns, "loops_broken": chance.random() < 0.1}


def _events(chance: random.Random, now: float) -> list[Json]:
    begin = now - HOURS * HOUR
    alone = {"request_id": "", "session": "", "agent": ""}
    found: list[Json] = [
        _event(begin + 600, "started", {"version": "0.3.0"}, **alone),
        _event(begin + 2.2 * HOUR, "upstream_down", {"why": "connection refused"}, **alone),
        _event(begin + 2.6 * HOUR, "upstream_up", {"seconds": 1440.0}, **alone),
        _event(begin + 5 * HOUR, "tier_degraded", {"seconds": 60}, **alone, tier="fast"),
        _event(begin + 5.2 * HOUR, "tier_recovered", {}, **alone, tier="fast"),
        _event(begin + 8 * HOUR, "started", {"version": "0.3.0", "killed": True}, **alone),
    ]
    levels = ["normal", "warning", "critical", "warning", "normal", "warning", "normal"]
    for place, (before, after) in enumerate(pairwise(levels)):
        detail = {"from": before, "to": after, "cause": "swap"}
        found.append(
            _event(begin + (3.5 + place * 0.7) * HOUR, "pressure_changed", detail, **alone)
        )
    told = [
        ("tool_call_repaired", {"repair": "trailing_comma", "tool": "read_file"}),
        ("tool_call_repaired", {"format": "hermes", "tool": "bash"}),
        ("recovered", {"reasons": ["tool_validation_failure"], "attempts": 2, "seconds": 3.4}),
        ("recovered", {"reasons": ["timeout"], "attempts": 3, "seconds": 41.0, "from": "fast"}),
        ("loop_break", {"detector": "same_call", "action": "circuit_break", "repeats": 6}),
        ("exhausted", {"type": "all_tiers_failed", "status": 502, "attempts": [{}, {}, {}]}),
    ]
    for number in range(60):
        agent = chance.choice(AGENTS)
        kind, detail = chance.choices(told, [9, 4, 6, 3, 1, 1])[0]
        about = {"request_id": f"req_{number:024x}", "session": _session(agent, chance)}
        time = begin + chance.uniform(0.1, HOURS - 0.1) * HOUR
        found.append(_event(time, kind, detail, agent=agent, tier="fast", **about))
    return found


def _event(time: float, kind: str, detail: Json, **more: str) -> Json:
    return {"time": time, "kind": kind, "detail": detail, "tier": "", **more}
