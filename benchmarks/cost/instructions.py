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
from .__main__ import listed
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
    names = [name for name in NAMES if any(name in found for found in counts.values())]
    rows = []
    for kind, found in counts.items():
        cells = [_cell(found, name) for name in names]
        rows.append([measure.REQUESTS[kind].label, *cells])
    return pages.table(["thousand instructions a request", *names], rows)


def _cell(found: dict[str, float], name: str) -> str:
    if name not in found:
        return report.NOTHING
    ours, relay = found[name], found.get(HTTPX)
    said = f"{ours / 1e3:,.0f}"
    return said if name == HTTPX or not relay else f"{said} · {ours / relay:.2f} ×"


async def of_kind(server: Server, kind: str, count: int, written: Path) -> float:
    """Instructions a request. Raises ValueError, LoadError."""
    make = measure.REQUESTS[kind].make()
    for counted in (False, True):
        batch = make(count)
        await measure.send(server, batch.prepare, measure.CONNECTIONS, batch.path)
        if counted:
            _control(server, "--zero")
            _control(server, "--instr=on")
        await measure.send(server, batch.measured, measure.CONNECTIONS, batch.path)
    _control(server, "--instr=off")
    before = set(written.parent.glob(f"{written.name}.*"))
    _control(server, "--dump")
    (dump,) = set(written.parent.glob(f"{written.name}.*")) - before
    return total(dump.read_text(errors="replace")) / count


def _control(server: Server, what: str) -> None:
    asked = ["callgrind_control", what, str(server.process.pid)]
    subprocess.run(asked, check=True, capture_output=True, timeout=60)


async def measured(
    chosen: Sequence[Contestant], kinds: Sequence[str], folder: Path
) -> tuple[Counts, list[str]]:
    """The counts, and a line for each thing that did not come about."""
    counts: Counts = {kind: {} for kind in kinds}
    missing = []
    upstream = contestants.start_upstream(folder)
    try:
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
            try:
                for kind in [k for k in kinds if not contestant.heavy or k in KINDS_HEAVY]:
                    count = COUNT_HEAVY if contestant.heavy else COUNT
                    counts[kind][contestant.name] = await of_kind(server, kind, count, written)
            except (OSError, ValueError, load.LoadError, subprocess.SubprocessError) as error:
                missing.append(f"{contestant.name}, {kind}: {error}")
            finally:
                server.stop()
    finally:
        upstream.stop()
    return counts, missing


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = machine.options("benchmarks.cost.instructions", __doc__, write=True)
    parser.add_argument("--only", type=listed, default=list(NAMES), metavar="NAME,…")
    parser.add_argument("--kinds", type=listed, default=list(KINDS), metavar="KIND,…")
    options = parser.parse_args(argv)
    if unknown := [kind for kind in options.kinds if kind not in KINDS]:
        parser.error(f"unknown kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    try:
        chosen = contestants.chosen(options.only)
    except ValueError as error:
        parser.error(str(error))
    options.contestants = [one for one in chosen if one.name in NAMES]
    return options


def main() -> int:
    options = arguments()
    if shutil.which("valgrind") is None or shutil.which("callgrind_control") is None:
        print("valgrind is missing (on Debian: apt-get install valgrind)", file=sys.stderr)
        return 1
    servers.stop_with_us()
    command = machine.command("benchmarks.cost.instructions", sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="bench-instructions-") as name:
        found = asyncio.run(measured(options.contestants, options.kinds, Path(name)))
    counts, missing = found
    about = {"left out": "; ".join(missing)} if missing else {}
    pages.publish(command, {MARKER: table(counts)}, options.write, about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
