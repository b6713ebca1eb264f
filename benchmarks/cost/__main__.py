"""What the proxy costs, beside bare relays and other gateways, on one scripted upstream.

    python -m benchmarks.cost [--only NAME,…] [--kinds KIND,…] [--write FILE …]

All servers run at once, each in its own process, and are loaded in turns, one figure after the
other, so that whatever else the machine does falls on all of them. CPU is the process's own user
and system time. Ratios are made within a round; printed are the median and the range.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import machine, pages
from benchmarks.cost import contestants, growth, measure, plots, report
from benchmarks.cost.contestants import PROXY
from benchmarks.cost.growth import Growth
from benchmarks.cost.rounds import Bench, Clock
from benchmarks.cost.samples import Samples
from benchmarks.measure import servers
from mlx_stack_proxy.server import open_files

GROWTH = "growth"
KINDS = (*measure.KINDS, GROWTH, *(f"{GROWTH}.{axis.name}" for axis in growth.AXES))
LEAST_ROUNDS = 3
GROWTH_OPEN, GROWTH_ROUND = 45.0, 22.0  # seconds that they take at most, as a rule
QUICK = 0.4
IMAGE = "growth.png"
TOLD_LAST = ("rounds", "left out", "unexpected")


def listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost", description=__doc__)
    names = ", ".join(one.name for one in contestants.ALL)
    add = parser.add_argument
    add("--only", type=listed, default=[], metavar="NAME,…", help=f"parts of names: {names}")
    add("--kinds", type=listed, default=[], metavar="KIND,…", help=f"of: {', '.join(KINDS)}")
    add("--rounds", type=int, default=5)
    add("--minutes", type=float, default=14.5, help="slices are made smaller to end by then")
    add("--quick", action="store_true", help="two small rounds without LiteLLM and growth")
    add("--write", type=Path, nargs="*", default=[], metavar="FILE", help="pages with the markers")
    add("--images", type=Path, default=Path("benchmarks/images"), metavar="FOLDER")
    add("--json", type=Path, metavar="FILE", help="write every round's values")
    add("--profile", action="store_true", help="where the proxy's time goes, at the end")
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


def wanted_kinds(options: argparse.Namespace) -> tuple[frozenset[str], frozenset[str]]:
    """Of the rounds, and the axes of growth."""
    kinds = frozenset(options.kinds or KINDS)
    axes = frozenset(
        axis.name for axis in growth.AXES if GROWTH in kinds or f"{GROWTH}.{axis.name}" in kinds
    )
    return kinds & frozenset(measure.KINDS), axes


async def run(
    options: argparse.Namespace, folder: Path, say: Any
) -> tuple[Samples, list[str], list[str], int]:
    """The figures, what is missing, what went wrong, and how many rounds there were."""
    kinds, axes = wanted_kinds(options)
    clock = Clock(time.monotonic() + 60 * options.minutes, QUICK if options.quick else 1.0)
    with contextlib.ExitStack() as stack:
        upstream = servers.start_upstream(folder)
        stack.callback(upstream.stop)
        reserved = (GROWTH_OPEN + GROWTH_ROUND * options.rounds) if axes else 0.0
        until = clock.until - reserved * clock.least
        bench = Bench(upstream, folder, options.contestants, kinds, say, until)
        done = await main_rounds(options, bench, clock, reserved, stack) if kinds else 0
        missing, bench.notes = bench.notes[:], []
        if axes:
            try:
                async with asyncio.timeout(max(clock.until - time.monotonic(), 0)):
                    await growth_rounds(options, bench, axes, clock, stack)
            except TimeoutError:
                bench.note("growth: not all of it, the time is up")
            except Exception as error:  # what was measured before is not to be lost
                bench.note(f"growth: not all of it: {error!r}")
        wrong = [f"{name}: {count}" for name, count in sorted(bench.unexpected.items())]
        return bench.samples, missing + bench.notes, wrong, done


async def main_rounds(
    options: argparse.Namespace,
    bench: Bench,
    clock: Clock,
    reserved: float,
    stack: contextlib.ExitStack,
) -> int:
    staying = {}
    for contestant in options.contestants:
        if contestant.stays:
            bench.say(f"  {contestant.name} is starting")
            server = bench.start(contestant, 0)
            if server is not None:
                staying[contestant.name] = server
                stack.callback(server.stop)
    for turn in range(options.rounds):
        began = time.monotonic()
        await bench.round(turn, clock.scale, staying)
        took = time.monotonic() - began
        bench.say(f"  round {turn + 1} of {options.rounds}: {took:.0f} s, scale {clock.scale:.2f}")
        left = options.rounds - turn - 1
        fits = clock.after_round(took, left, reserved)
        up = time.monotonic() >= bench.until
        if left and (up or (not fits and turn + 1 >= LEAST_ROUNDS)):
            bench.note(f"only {turn + 1} rounds: the time is up")
            break
    if measure.MEMORY in bench.kinds:  # last: it is long busy with streams that were left
        stayed = [one for one in options.contestants if one.name in staying]
        await bench.memory([(one, staying[one.name]) for one in stayed])
    return turn + 1


async def growth_rounds(
    options: argparse.Namespace,
    bench: Bench,
    axes: frozenset[str],
    clock: Clock,
    stack: contextlib.ExitStack,
) -> None:
    bench.say("growth")
    folder = bench.folder / "growth"
    folder.mkdir()
    grown = Growth(bench.upstream, folder, axes)
    stack.callback(grown.close)
    await grown.open(bench.say)
    for turn in range(options.rounds):
        began = time.monotonic()
        await grown.round(turn, bench.samples, clock.scale)
        took = time.monotonic() - began
        bench.say(f"  round {turn + 1} of {options.rounds}: {took:.0f} s, scale {clock.scale:.2f}")
        left = options.rounds - turn - 1
        if left and not clock.after_round(took, left, 0) and turn + 1 >= LEAST_ROUNDS:
            bench.note(f"growth: only {turn + 1} rounds: the time is up")
            break
    for server in grown.running:
        if server.name == PROXY:
            bench.look_for_unexpected(server)


def versions() -> str:
    """Of what is measured beside ours."""
    found = []
    with contextlib.suppress(metadata.PackageNotFoundError):
        found.append(f"LiteLLM {metadata.version('litellm')}")
    package = contestants.FOREIGN / "portkey/node_modules/@portkey-ai/gateway/package.json"
    with contextlib.suppress(OSError, ValueError, KeyError):
        found.append(f"Portkey {json.loads(package.read_text())['version']}")
    for info in (contestants.FOREIGN / "forge").glob("lib/*/site-packages/forge_guardrails-*"):
        found.append(f"forge {info.name.split('-')[1].removesuffix('.dist')}")
    return ", ".join(found)


def tell(options: argparse.Namespace, about: dict[str, object], samples: Samples) -> None:
    """Print the report, and write what was asked for."""
    images = []
    image = options.images / IMAGE
    if options.write and not plots.available():
        print("no plot: matplotlib is missing (make bench-install)")
    elif options.write and plots.draw(samples, image):
        images = [f"![How the cost grows](images/{IMAGE})"]
    names = [one.name for one in options.contestants if samples.has(one.name)]
    counts = {one.name: one.open_streams for one in options.contestants}
    text = report.whole(samples, names, counts, images)
    print(f"\n{text}")
    for page in options.write:
        contents = {report.MARKER: f"{report.heading(about)}\n\n{text}"}
        print(f"{page}: {', '.join(pages.write(page, contents))}")
    if options.json:
        options.json.write_text(json.dumps({"about": about, **samples.as_json()}, indent=1) + "\n")


def main() -> int:
    options = arguments()
    # So that what was started is ended, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = machine.command("benchmarks.cost", sys.argv[1:])
    files = open_files.raise_limit()
    about = {"command": command, **machine.about(), "beside": versions(), "open files": files}
    print(report.heading(about), flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-cost-") as name:
        found = uvloop.run(run(options, Path(name), lambda line: print(line, flush=True)))
        samples, missing, wrong, done = found
        about["rounds"] = f"{done}, {(time.monotonic() - began) / 60:.1f} minutes in all"
        if missing:
            about["left out"] = "; ".join(missing)
        if wrong:
            about["unexpected"] = "; ".join(wrong)
        print("".join(f"\n{key}: {about[key]}" for key in about if key in TOLD_LAST))
        tell(options, about, samples)
        if options.profile:
            from benchmarks.cost import profile

            upstream = servers.start_upstream(Path(name))
            try:
                print(asyncio.run(profile.profile(upstream.port, Path(name))))
            finally:
                upstream.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
