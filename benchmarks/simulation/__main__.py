"""``python -m benchmarks.simulation [--plot FILE] [--real]``: the tables of docs/scaling.md.

``--real``: beside them the same agents against the real proxy and scripted upstreams, in real time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.simulation.simulate import Outcome, simulate
from benchmarks.simulation.world import FAST, TWO_TIERS, Tier, World, settings

AGENTS = (1, 2, 4, 8, 16, 32, 64)
WAYS: dict[str, dict[str, Any]] = {
    "no escalation": {"enabled": False},
    "sticky 0 s": {"sticky_seconds": 0},
    "sticky 60 s": {"sticky_seconds": 60},
    "sticky 300 s": {"sticky_seconds": 300},
}
HEAD = "| {0} | right/min | right | median | p95 | busy fast | busy standard |\n|" + "---|" * 7


def row(label: str, found: Outcome) -> str:
    seconds = found.world.seconds
    busy = " | ".join(f"{found.busy[tier] / seconds:.0%}" for tier in TWO_TIERS)
    return (
        f"| {label} | {found.right_a_minute:.1f} | {found.share_right:.1%} |"
        f" {found.took(0.5):.0f} s | {found.took(0.95):.0f} s | {busy} |"
    )


def escalation(seconds: float, *, shared: bool) -> Iterator[tuple[str, int, Outcome]]:
    for agents in AGENTS:
        for way, changes in WAYS.items():
            world = World(TWO_TIERS, agents, seconds, shared=shared)
            yield way, agents, simulate(world, settings(TWO_TIERS, **changes))


def breaker(seconds: float) -> Iterator[tuple[str, Outcome]]:
    """`fast` is dead for a minute in each ten; or well, but for one call in ten."""
    dead = tuple((at, at + 60.0) for at in range(300, int(seconds), 600))
    faults = {
        "dead 1 min in 10": Tier(FAST.seconds, FAST.bad_easy, FAST.bad_hard, 0.005, dead),
        "1 error in 10": Tier(FAST.seconds, FAST.bad_easy, FAST.bad_hard, 0.1),
    }
    for fault, fast in faults.items():
        for failures in (1, 3, 5, 10, 1000):
            for cooldown in (10, 30, 120) if failures < 1000 else (30,):
                rules = {"failures": failures, "cooldown_seconds": cooldown}
                world = World({**TWO_TIERS, "fast": fast}, 4, seconds)
                label = f"{fault}, {failures} failures, {cooldown} s"
                yield label, simulate(world, settings(TWO_TIERS, degrade=rules))


def queue(seconds: float) -> Iterator[tuple[str, Outcome]]:
    for agents in (8, 32):
        for timeout in (10, 30, 60, 120):
            world = World(TWO_TIERS, agents, seconds)
            changed = settings(TWO_TIERS, {"queue_timeout": timeout})
            yield f"{agents} agents, queue_timeout {timeout} s", simulate(world, changed)
        for slots in (1, 2, 4, 8):
            world = World(TWO_TIERS, agents, seconds)
            changed = settings(TWO_TIERS, {"max_concurrency": slots})
            yield f"{agents} agents, max_concurrency {slots}", simulate(world, changed)


def plot(file: Path, panels: dict[str, list[tuple[str, int, Outcome]]]) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(panels), figsize=(10, 7), sharex=True, squeeze=False)
    readings: list[tuple[str, Callable[[Outcome], float]]] = [
        ("right turns a minute", lambda found: found.right_a_minute),
        ("p95 of a turn, seconds", lambda found: found.took(0.95)),
    ]
    for column, (title, found) in enumerate(panels.items()):
        for line, (name, read) in enumerate(readings):
            axis = axes[line][column]
            for way in WAYS:
                points = [(agents, read(outcome)) for w, agents, outcome in found if w == way]
                axis.plot(*zip(*points, strict=True), marker="o", label=way)
            axis.set(xscale="log", xlabel="agents", ylabel=name, title=title if not line else "")
            axis.set_xticks(AGENTS, [str(n) for n in AGENTS])
            axis.grid(alpha=0.3)
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(file, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.simulation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="simulated, of each row")
    parser.add_argument("--plot", type=Path, help="write the curves as a PNG")
    parser.add_argument("--real", action="store_true", help="check it against the real proxy")
    given = parser.parse_args()
    seconds = given.minutes * 60
    if given.real:
        from benchmarks.simulation import real

        real.compare()
        return
    panels: dict[str, list[Any]] = {}
    for title, shared in (("one machine", True), ("a machine for each tier", False)):
        print(f"\n{title}\n\n{HEAD.format('agents, escalation')}", flush=True)
        panels[title] = []
        for way, agents, found in escalation(seconds, shared=shared):
            panels[title].append((way, agents, found))
            print(row(f"{agents}, {way}", found), flush=True)
    for title, rows in (("breaker, 4 agents", breaker(seconds)), ("queue", queue(seconds))):
        print(f"\n{HEAD.format(title)}")
        for label, found in rows:
            print(row(label, found), flush=True)
    if given.plot:
        plot(given.plot, panels)


if __name__ == "__main__":
    main()
