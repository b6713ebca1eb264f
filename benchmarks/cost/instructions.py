"""What a request costs in instructions: nearly the same figures at any hour, on any machine.

    python -m benchmarks.cost.instructions [--only NAME,…] [--kinds KIND,…] [--write FILE …]

Each server runs under valgrind's callgrind, which counts what its process executes outside the
kernel; it gets requests that are not counted first, then as many as are. What depends on time is
left out, because valgrind makes a server some fifty times slower: no streams with pauses.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine, pages, servers
from benchmarks.servers import Server

from . import contestants, load, measure, report
from .contestants import FRAME, HTTPX, LITELLM, PROXY, Contestant, Missing

MARKER = "instructions"  # in the documents
NAMES = (HTTPX, FRAME, PROXY, LITELLM)
KINDS = ("plain", "call", "tools", "history", "seen")
COUNT, COUNT_HEAVY = 320, 32  # requests that are counted, and as many before them
KINDS_HEAVY = ("plain", "call", "tools")  # the others would take a quarter of an hour
_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)

Counts = dict[str, dict[str, float]]  # by kind and server: instructions a request


def total(written: str) -> int:
    """The instructions in a file of callgrind's. Raises ValueError for one without."""
    found = [int(count) for count in _TOTAL.findall(written)]
    if not found:
        raise ValueError("callgrind wrote no counts")
    return max(found)


def table(counts: Counts) -> str:
    """In thousands, and × the httpx relay."""

    def cell(found: dict[str, float], name: str) -> str:
        if name not in found:
            return report.NOTHING
        said, relay = f"{found[name] / 1e3:,.0f}", found.get(HTTPX)
        return said if name == HTTPX or not relay else f"{said} · {found[name] / relay:.2f} ×"

    names = [name for name in NAMES if any(name in found for found in counts.values())]
    rows = [
        [measure.REQUESTS[kind].label, *(cell(found, name) for name in names)]
        for kind, found in counts.items()
    ]
    return pages.table(["thousand instructions a request", *names], rows)


async def of_kind(server: Server, kind: str, count: int, written: Path) -> float:
    """Instructions a request. Raises ValueError, LoadError."""

    def control(what: str) -> None:
        asked = ["callgrind_control", what, str(server.process.pid)]
        subprocess.run(asked, check=True, capture_output=True, timeout=60)

    make = measure.REQUESTS[kind].make()
    await measure.of_batch(server, make(count), measure.CONNECTIONS)
    batch = make(count)
    if batch.prepare:
        await measure.timed(server, batch.prepare, measure.CONNECTIONS, batch.path)
    control("--zero")
    control("--instr=on")
    await measure.timed(server, batch.measured, measure.CONNECTIONS, batch.path)
    control("--instr=off")
    before = set(written.parent.glob(f"{written.name}.*"))
    control("--dump")
    (dump,) = set(written.parent.glob(f"{written.name}.*")) - before
    return total(dump.read_text(errors="replace")) / count


async def measured(
    chosen: Sequence[Contestant], kinds: Sequence[str], folder: Path
) -> tuple[Counts, list[str]]:
    """The counts, and a line for each thing that did not come about."""
    counts: Counts = {kind: {} for kind in kinds}
    missing = []
    with contestants.start_upstream(folder) as upstream:
        for contestant in chosen:
            print(f"  {contestant.name}", flush=True)
            written = folder / f"{contestant.name.replace(' ', '-')}.counts"
            valgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
            try:
                with servers.run_by([*valgrind, f"--callgrind-out-file={written}"]):
                    server = contestant.start(upstream.port, folder)
            except (Missing, RuntimeError) as error:
                missing.append(f"{contestant.name}: {error}")
                continue
            count = COUNT_HEAVY if contestant.heavy else COUNT
            with server:
                try:
                    for kind in [k for k in kinds if not contestant.heavy or k in KINDS_HEAVY]:
                        counts[kind][contestant.name] = await of_kind(server, kind, count, written)
                except (OSError, ValueError, load.LoadError, subprocess.SubprocessError) as error:
                    missing.append(f"{contestant.name}, {kind}: {error}")
    return counts, missing


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = machine.options("benchmarks.cost.instructions", __doc__, write=True)
    options = contestants.choose(parser, argv, KINDS)
    options.contestants = [one for one in options.contestants if one.name in NAMES]
    return options


def main() -> int:
    options = arguments()
    if shutil.which("valgrind") is None or shutil.which("callgrind_control") is None:
        print("valgrind is missing (on Debian: apt-get install valgrind)", file=sys.stderr)
        return 1
    servers.stop_with_us()
    with tempfile.TemporaryDirectory(prefix="bench-instructions-") as name:
        kinds = options.kinds or KINDS
        counts, missing = asyncio.run(measured(options.contestants, kinds, Path(name)))
    about = {"left out": "; ".join(missing)} if missing else {}
    pages.publish("benchmarks.cost.instructions", {MARKER: table(counts)}, options.write, about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
