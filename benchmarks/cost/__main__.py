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
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import uvloop

from benchmarks import machine, pages, servers
from mlx_stack_proxy.server import open_files

from . import contestants, growth, measure, report
from .measure import Round
from .rounds import Bench, Clock

Say = Callable[[str], None]

GROWTH = "growth"
KINDS = (*measure.KINDS, GROWTH, *(f"{GROWTH}.{axis.name}" for axis in growth.AXES))
LEAST_ROUNDS = 3
QUICK = 0.4


def listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = machine.options("benchmarks.cost", __doc__, write=True)
    names = ", ".join(one.name for one in contestants.ALL)
    add = parser.add_argument
    add("--only", type=listed, default=[], metavar="NAME,…", help=f"parts of names: {names}")
    add("--kinds", type=listed, default=[], metavar="KIND,…", help=f"of: {', '.join(KINDS)}")
    add("--rounds", type=int, default=5)
    add("--minutes", type=float, default=14.5, help="slices are made smaller to end by then")
    add("--quick", action="store_true", help="two small rounds without LiteLLM and growth")
    add("--json", type=Path, metavar="FILE", help="write every round's values")
    options = parser.parse_args(argv)
    if options.quick:
        options.rounds = min(options.rounds, 2)
        quick = [one.name for one in contestants.ALL if not one.heavy]
        options.only = options.only or quick
        options.kinds = options.kinds or list(measure.KINDS)
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"unknown kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    try:
        options.contestants = contestants.chosen(options.only)
    except ValueError as error:
        parser.error(str(error))
    return options


def wanted_kinds(options: argparse.Namespace) -> tuple[frozenset[str], list[growth.Axis]]:
    """Of the rounds, and the axes of growth."""
    kinds = frozenset(options.kinds or KINDS)
    axes = [one for one in growth.AXES if kinds & {GROWTH, f"{GROWTH}.{one.name}"}]
    return kinds & frozenset(measure.KINDS), axes


async def run(options: argparse.Namespace, folder: Path, say: Say) -> tuple[Bench, int]:
    """The bench with its figures and notes, and how many rounds there were."""
    kinds, axes = wanted_kinds(options)
    clock = Clock(time.monotonic() + 60 * options.minutes, QUICK if options.quick else 1.0)
    with contextlib.ExitStack() as stack:
        upstream = contestants.start_upstream(folder)
        stack.callback(upstream.stop)
        bench = Bench(upstream, folder, options.contestants, kinds, say, clock.until)
        staying = {}
        for contestant in [one for one in options.contestants if one.stays]:
            say(f"  {contestant.name} is starting")
            server = bench.start(contestant, 0)
            if server is not None:
                staying[contestant.name] = server
                stack.callback(server.stop)
        if axes:
            grown = contestants.proxy(upstream.port, folder, tiers=growth.TIERS)
            stack.callback(grown.stop)
            await bench.guard(grown, GROWTH, measure.warm_up(grown, 0.5))
        turn = 0
        for turn in range(options.rounds):
            began = time.monotonic()
            if kinds:
                await bench.round(turn, clock.scale, staying)
            of = Round(turn, bench.samples, clock.scale)
            for axis in axes:
                await bench.guard(grown, axis.name, growth.measure_axis(of, grown, axis))
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
    command = machine.command("benchmarks.cost", sys.argv[1:])
    files = open_files.raise_limit()
    about = {**machine.about(), "beside": versions(), "open files": files}
    about["settings"] = report.SETTINGS
    print(machine.heading(about), flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-cost-") as name:
        bench, done = uvloop.run(run(options, Path(name), lambda line: print(line, flush=True)))
    about["rounds"] = f"{done}, {(time.monotonic() - began) / 60:.1f} minutes in all"
    if bench.notes:
        about["left out"] = "; ".join(bench.notes)
    if bench.unexpected:
        about["unexpected"] = "; ".join(f"{k}: {v}" for k, v in sorted(bench.unexpected.items()))
    samples = bench.samples
    names = [one.name for one in options.contestants if samples.has(one.name)]
    counts = {one.name: one.open_streams for one in options.contestants}
    tables = {report.MARKER: report.whole(samples, names, counts)}
    pages.publish(command, tables, options.write, about)
    if options.json:
        options.json.write_text(json.dumps({"about": about, **samples.as_json()}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
