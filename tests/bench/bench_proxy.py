"""What the proxy costs, beside bare relays and LiteLLM, on one scripted upstream (`make bench`).

    python -m tests.bench.bench_proxy [--quick] [--profile] [--json FILE]

All servers run at once, each in its own process, and are loaded in turns, one figure after the
other, so that whatever else the machine does falls on all of them. CPU is the process's own user
and system time. Ratios are made within a round; printed are the median and the range.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from tests.bench import figures, load, report, servers
from tests.bench.figures import Rounds, Size

SECONDS, QUICK_SECONDS = 210, 45  # no round is begun that would end later …
LEAST_ROUNDS = 3  # … but for these
HEAVY_SERVER = "LiteLLM alone"  # needs twenty times the CPU, so it gets little of the load:
HEAVY_ROUNDS, HEAVY_STREAMS = 3, 200


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_proxy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small rounds, no LiteLLM")
    parser.add_argument("--rounds", type=int, default=7, help="fewer if the time is up before")
    parser.add_argument("--streams", type=int, default=1000, help="open at once, for the memory")
    parser.add_argument("--only", nargs="*", help="names, or parts of names, of the servers")
    parser.add_argument("--profile", action="store_true", help="where the proxy's time goes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round's values")
    return parser.parse_args()


def start_servers(
    stack: contextlib.ExitStack, folder: Path, wanted: list[str] | None, quick: bool
) -> tuple[servers.Server, list[servers.Server], list[str]]:
    """The upstream, what is measured, and a line about whatever could not be started."""
    upstream = servers.start_upstream(folder)
    stack.callback(upstream.stop)
    starters = {
        "aiohttp relay": lambda: servers.start_relay("aiohttp", upstream.port, folder),
        "httpx relay": lambda: servers.start_relay("httpx", upstream.port, folder),
        "transport relay": lambda: servers.start_relay("transport", upstream.port, folder),
        "its frame": lambda: servers.start_proxy(upstream.port, folder, stages=False),
        "this proxy": lambda: servers.start_proxy(upstream.port, folder),
        HEAVY_SERVER: lambda: servers.start_litellm(upstream.port, folder, load.KEY),
    }
    running, missing = [], []
    for name, starter in starters.items():
        if wanted and not any(part.lower() in name.lower() for part in wanted):
            continue
        if quick and not wanted and name == HEAVY_SERVER:
            continue
        try:
            server = starter()
        except RuntimeError as error:
            missing.append(f"{name} did not start: {error}")
            continue
        if server is None:
            missing.append(f"{name}: not installed")
            continue
        stack.callback(server.stop)
        running.append(server)
    return upstream, running, missing


def size_for(server: servers.Server, quick: bool) -> Size:
    size = figures.HEAVY if server.name == HEAVY_SERVER else figures.LIGHT
    return size.scaled(0.4) if quick else size


async def measure(
    upstream: servers.Server,
    under_test: list[servers.Server],
    options: argparse.Namespace,
    until: float,
) -> tuple[dict[str, Rounds], dict[str, dict[str, float]], Rounds]:
    memory: dict[str, dict[str, float]] = {}
    for server in under_test:
        await warm_up(server)
        if server.name != HEAVY_SERVER:
            await take_memory(server, options.streams, memory)
    rounds = {server.name: Rounds(server.name) for server in under_test}
    direct = Rounds("upstream")
    for number in range(options.rounds):
        began = time.monotonic()
        await figures.first_text_round(upstream, 200, direct)
        order = under_test if number % 2 else under_test[::-1]
        if number >= HEAVY_ROUNDS:
            order = [server for server in order if server.name != HEAVY_SERVER]
        for take_slice in figures.SLICES:
            for server in order:
                await take_slice(server, size_for(server, options.quick), rounds[server.name])
        took = time.monotonic() - began
        print(f"  round {number + 1} of {options.rounds}: {took:.1f} s", flush=True)
        if number + 1 >= LEAST_ROUNDS and time.monotonic() + took > until:
            break
    for server in under_test:
        if server.name == HEAVY_SERVER:  # last, for it is long busy with streams that were left
            await take_memory(server, min(options.streams, HEAVY_STREAMS), memory)
    return rounds, memory, direct


async def warm_up(server: servers.Server) -> None:
    for stream in (False, True):
        body = figures.body_maker(figures.SHORT, 0, stream)
        await load.run_load(server.port, body, 4, 20 if server.name == HEAVY_SERVER else 200)


async def take_memory(
    server: servers.Server, streams: int, memory: dict[str, dict[str, float]]
) -> None:
    try:
        found = await figures.measure_memory(server, streams, within=45)
        memory[server.name] = {**found, "streams": streams}
    except (TimeoutError, load.LoadError) as error:
        print(f"  {server.name}: {streams} open streams failed: {error!r}", flush=True)


def machine() -> dict[str, str | int]:
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "cores": servers.psutil.cpu_count() or 0,
        "cpu": model,
        "os": platform.platform(),
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def main() -> int:
    options = arguments()
    command = " ".join(["python -m tests.bench.bench_proxy", *sys.argv[1:]])
    files = servers.allow_many_sockets()
    until = time.monotonic() + (QUICK_SECONDS if options.quick else SECONDS)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        upstream, under_test, missing = start_servers(stack, folder, options.only, options.quick)
        for line in missing:
            print(line)
        about = {"command": command, **machine(), "open files": files}
        print(report.heading(about), flush=True)
        result = uvloop.run(measure(upstream, under_test, options, until))
        print(report.table(*result))
        if options.json:
            options.json.write_text(json.dumps(report.as_json(about, *result), indent=1) + "\n")
        if options.profile:
            from tests.bench import profile_parts

            for server in under_test:
                server.stop()
            print(asyncio.run(profile_parts.profile(upstream.port, folder)))
    return 1 if missing and any("this proxy" in line for line in missing) else 0


if __name__ == "__main__":
    sys.exit(main())
