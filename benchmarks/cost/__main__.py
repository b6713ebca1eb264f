"""What the proxy costs, beside bare relays and other gateways, on one scripted upstream.

    python -m benchmarks.cost [--only NAME,…] [--kinds KIND,…] [--write FILE …]

All servers run at once, each in its own process, and are loaded in turns, one figure after the
other, so that whatever else the machine does falls on all of them. CPU is the process's own user
and system time. Ratios are made within a round; printed are the median and the range.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import uvloop

from benchmarks import machine, pages, servers
from mlx_stack_proxy.server import open_files

from . import contestants, measure, report
from .measure import Axis, Round
from .rounds import Bench, Clock

GROWTH = "growth"
KINDS = (*measure.KINDS, GROWTH, *(f"{GROWTH}.{axis.name}" for axis in measure.AXES))
LEAST_ROUNDS = 3
QUICK = 0.4


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = machine.options("benchmarks.cost", __doc__, write=True)
    add = parser.add_argument
    add("--rounds", type=int, default=5)
    add("--minutes", type=float, default=14.5, help="slices are made smaller to end by then")
    add("--quick", action="store_true", help="two small rounds without LiteLLM and growth")
    add("--json", type=Path, metavar="FILE", help="write every round's values")
    options = contestants.choose(parser, argv, KINDS)
    if options.quick:
        options.rounds = min(options.rounds, 2)
        options.kinds = options.kinds or list(measure.KINDS)
        if not options.only:
            options.contestants = [one for one in contestants.ALL if not one.heavy]
    return options


def wanted_kinds(options: argparse.Namespace) -> tuple[frozenset[str], list[Axis]]:
    """Of the rounds, and the axes of growth."""
    kinds = frozenset(options.kinds or KINDS)
    axes = [one for one in measure.AXES if kinds & {GROWTH, f"{GROWTH}.{one.name}"}]
    return kinds & frozenset(measure.KINDS), axes


async def run(options: argparse.Namespace, folder: Path) -> tuple[Bench, int]:
    """The bench with its figures and notes, and how many rounds there were."""
    kinds, axes = wanted_kinds(options)
    clock = Clock(time.monotonic() + 60 * options.minutes, QUICK if options.quick else 1.0)
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(contestants.start_upstream(folder))
        bench = Bench(upstream, folder, options.contestants, kinds, clock.until)
        staying = {}
        for contestant in [one for one in options.contestants if one.stays]:
            say(f"  {contestant.name} is starting")
            if server := bench.start(contestant, 0):
                staying[contestant.name] = stack.enter_context(server)
        if axes:
            tiers = measure.GROWTH_TIERS
            grown = stack.enter_context(contestants.proxy(upstream.port, folder, tiers=tiers))
            await bench.guard(grown, GROWTH, measure.warm_up(grown, 0.5))
        turn = 0
        for turn in range(options.rounds):
            began = time.monotonic()
            if kinds:
                await bench.round(turn, clock.scale, staying)
            of = Round(turn, bench.samples, clock.scale)
            for axis in axes:
                await bench.guard(grown, axis.name, of.growth(grown, axis))
            took, left = time.monotonic() - began, options.rounds - turn - 1
            say(f"  round {turn + 1} of {options.rounds}: {took:.0f} s, scale {clock.scale:.2f}")
            if left and not clock.after_round(took, left) and turn + 1 >= LEAST_ROUNDS:
                bench.note(f"only {turn + 1} rounds: the time is up")
                break
        for contestant in options.contestants:
            # Last: it is long busy with streams that were left.
            if measure.MEMORY in kinds and contestant.name in staying:
                await bench.memory(contestant, staying[contestant.name])
        if axes:
            bench.look_for_unexpected(grown)
        return bench, turn + 1


def say(line: str) -> None:
    print(line, flush=True)


def versions() -> str:
    """Of what is measured beside ours."""
    found = []
    with contextlib.suppress(metadata.PackageNotFoundError):
        found.append(f"LiteLLM {metadata.version('litellm')}")
    package = contestants.FOREIGN / "portkey/node_modules/@portkey-ai/gateway/package.json"
    with contextlib.suppress(OSError, ValueError, KeyError):
        found.append(f"Portkey {json.loads(package.read_text())['version']}")
    return ", ".join(found)


def main() -> int:
    options = arguments()
    servers.stop_with_us()
    files = open_files.raise_limit()
    about = {**machine.about(), "beside": versions(), "open files": files}
    about["settings"] = report.SETTINGS
    say(machine.heading(about))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-cost-") as name:
        bench, done = uvloop.run(run(options, Path(name)))
    about["rounds"] = f"{done}, {(time.monotonic() - began) / 60:.1f} minutes in all"
    if bench.notes:
        about["left out"] = "; ".join(bench.notes)
    if bench.unexpected:
        about["unexpected"] = "; ".join(f"{k}: {v}" for k, v in sorted(bench.unexpected.items()))
    samples = bench.samples
    names = [one.name for one in options.contestants if samples.has(one.name)]
    counts = {one.name: one.open_streams for one in options.contestants}
    tables = {report.MARKER: report.whole(samples, names, counts)}
    pages.publish("benchmarks.cost", tables, options.write, about)
    if options.json:
        found = {"about": about, "figures": samples.figures, "pools": samples.pools}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
