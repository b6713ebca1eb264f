"""What is simulated, and its tables: a figure is the median of several seeds, with their range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.simulation.simulate import Outcome, simulate
from benchmarks.simulation.world import FAST, TWO_TIERS, Tier, World, settings

SEEDS = (1, 2, 3, 4, 5)
AGENTS = (1, 2, 4, 8, 16, 32, 64)
WAYS: dict[str, dict[str, Any]] = {
    "no escalation": {"enabled": False},
    "sticky 0 s": {"sticky_seconds": 0},
    "sticky 60 s": {"sticky_seconds": 60},
    "sticky 300 s": {"sticky_seconds": 300},
}
MACHINES = {"Both tiers on one machine": True, "A machine for each tier": False}
NEVER = 1000
FAILURES = (1, 3, 5, 10, NEVER)
COOLDOWNS = (10, 30, 120)
BREAKER_AGENTS, QUEUE_AGENTS = 4, (8, 32, 64)
TIMEOUTS, SLOTS = (10, 30, 60, 120), (1, 2, 4, 8)


@dataclass(frozen=True)
class Runs:
    """The same with other seeds."""

    outcomes: Sequence[Outcome]

    def of(self, read: Callable[[Outcome], float]) -> float:
        return median(map(read, self.outcomes))

    @property
    def right(self) -> float:
        return self.of(lambda one: one.right_a_minute)

    def cell(self) -> str:
        """Right turns a minute (least to most), turns given up, the 95th percentile."""
        right = [one.right_a_minute for one in self.outcomes]
        given_up = self.of(lambda one: 1 - one.share_right)
        p95 = self.of(lambda one: one.took(0.95))
        return (
            f"{self.right:.1f} ({min(right):.1f}–{max(right):.1f}) · {given_up:.1%} · {p95:.0f} s"
        )


Make = Callable[[int], Outcome]  # from a seed
Row = tuple[str, list[Make]]


def runs(make: Make) -> Runs:
    return Runs([make(seed) for seed in SEEDS])


def table(head: Sequence[str], rows: Iterator[Row]) -> Iterator[str]:
    """Its lines, each as soon as it is known."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for label, cells in rows:
        yield f"| {label} | {' | '.join(runs(make).cell() for make in cells)} |"


def of_agents(agents: int, way: str, seconds: float, *, shared: bool) -> Make:
    rules = settings(TWO_TIERS, **WAYS[way])
    return lambda seed: simulate(World(TWO_TIERS, agents, seconds, seed=seed, shared=shared), rules)


def faults(seconds: float) -> dict[str, Tier]:
    """What befalls `fast`."""
    minutes = tuple((at, at + 60.0) for at in range(300, int(seconds), 600))
    plain = (FAST.seconds, FAST.bad_easy, FAST.bad_hard)
    return {
        "one call in ten fails": Tier(*plain, errors=0.1),
        "dead for one minute in ten": Tier(*plain, errors=0.005, outages=minutes),
        "silent for one minute in ten": Tier(*plain, errors=0.005, stalls=minutes),
    }


def of_breaker(fast: Tier, failures: int, cooldown: float, seconds: float) -> Make:
    rules = settings(TWO_TIERS, degrade={"failures": failures, "cooldown_seconds": cooldown})
    tiers = {**TWO_TIERS, "fast": fast}
    return lambda seed: simulate(World(tiers, BREAKER_AGENTS, seconds, seed=seed), rules)


def of_queue(agents: int, changes: dict[str, Any], seconds: float) -> Make:
    rules = settings(TWO_TIERS, changes)
    return lambda seed: simulate(World(TWO_TIERS, agents, seconds, seed=seed), rules)


def breaker_rows(seconds: float) -> Iterator[Row]:
    befalls = faults(seconds).values()
    for failures in FAILURES:
        label = "never" if failures == NEVER else f"after {failures}"
        yield f"{label}, for 30 s", [of_breaker(one, failures, 30, seconds) for one in befalls]
    for cooldown in COOLDOWNS:
        if cooldown != 30:
            cells = [of_breaker(one, 5, cooldown, seconds) for one in befalls]
            yield f"after 5, for {cooldown} s", cells


def queue_rows(seconds: float) -> Iterator[Row]:
    for name, values in (("queue_timeout", TIMEOUTS), ("max_concurrency", SLOTS)):
        for value in values:
            cells = [of_queue(agents, {name: value}, seconds) for agents in QUEUE_AGENTS]
            yield f"`{name}: {value}`", cells
