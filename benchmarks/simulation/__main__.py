"""``python -m benchmarks.simulation [--real] [--write FILE] [--plot FILE]``: benchmarks/scaling.md.

``--real``: the same agents against the real proxy and scripted upstreams, in real time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import machine, pages
from benchmarks.simulation.tables import (
    AGENTS,
    MACHINES,
    QUEUE_AGENTS,
    SEEDS,
    WAYS,
    Runs,
    breaker_rows,
    faults,
    of_agents,
    queue_rows,
    runs,
    table,
)

MARKER, MARKER_REAL = "simulation", "simulation-real"
SAID = "right turns a minute (range of the seeds) · turns given up · 95th percentile of a turn"
Found = dict[tuple[str, int], Runs]  # by way and agents


class Page:
    """Prints lines, and remembers them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, line: str = "") -> None:
        print(line, flush=True)
        self.lines.append(line)


def simulated(page: Page, seconds: float) -> dict[str, Found]:
    """The tables; what the plot shows."""
    panels: dict[str, Found] = {}
    for title, shared in MACHINES.items():
        page.add(f"\n**{title}**\n")
        page.add(f"| agents | {' | '.join(WAYS)} |")
        page.add("|" + "---|" * (1 + len(WAYS)))
        found = panels[title] = {}
        for agents in AGENTS:
            for way in WAYS:
                found[way, agents] = runs(of_agents(agents, way, seconds, shared=shared))
            cells = [found[way, agents].cell() for way in WAYS]
            page.add(f"| {agents} | {' | '.join(cells)} |")
    page.add("\n**The breaker**: four agents on one machine; what befalls `fast`\n")
    for line in table(["a tier is taken out", *faults(seconds)], breaker_rows(seconds)):
        page.add(line)
    page.add("\n**The queue**: on one machine\n")
    for line in table(["", *(f"{n} agents" for n in QUEUE_AGENTS)], queue_rows(seconds)):
        page.add(line)
    return panels


def plot(file: Path, panels: dict[str, Found]) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(panels), figsize=(10, 7), sharex=True, squeeze=False)
    readings: list[tuple[str, Callable[[Runs], float]]] = [
        ("right turns a minute", lambda found: found.right),
        ("p95 of a turn, seconds", lambda found: found.of(lambda one: one.took(0.95))),
    ]
    for column, (title, found) in enumerate(panels.items()):
        for line, (name, read) in enumerate(readings):
            axis = axes[line][column]
            for way in WAYS:
                points = [(agents, read(found[way, agents])) for agents in AGENTS]
                axis.plot(*zip(*points, strict=True), marker="o", label=way)
            axis.set(xscale="log", xlabel="agents", ylabel=name, title=title if not line else "")
            axis.set_xticks(AGENTS, [str(n) for n in AGENTS])
            axis.grid(alpha=0.3)
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(file, dpi=90, metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulation", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=60, help="simulated, of each row and seed")
    add("--plot", type=Path, metavar="FILE", help="write the curves as a PNG")
    add("--real", action="store_true", help="check it against the real proxy; a quarter of an hour")
    add("--write", type=Path, metavar="FILE", help="a page with the markers")
    given = parser.parse_args()
    command = machine.command("benchmarks.simulation", sys.argv[1:])
    page = Page()
    page.add(machine.heading({"command": command, **machine.about()}))
    if given.real:
        from benchmarks.simulation import real

        page.add()
        real.compare(page.add)
    else:
        page.add(f"\nOf {len(SEEDS)} seeds, {given.minutes:g} minutes each: {SAID}.")
        panels = simulated(page, given.minutes * 60)
        if given.plot:
            plot(given.plot, panels)
    if given.write:
        marker = MARKER_REAL if given.real else MARKER
        pages.write(given.write, {marker: "\n".join(page.lines)})


if __name__ == "__main__":
    main()
