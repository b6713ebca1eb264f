"""What N processes on one Redis carry.

    python -m benchmarks.measure.bench_workers [--write PAGE]

Real Redis, ``server.workers`` of 1, 2 and 4, a scripted upstream that costs next to nothing. On few
cores the load, the upstream and the workers share them: what more cores do is said by the CPU that
each part takes for an exchange.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from benchmarks import machine, pages
from benchmarks.measure.load import chat_body, run_load
from benchmarks.measure.servers import PROXY_CONFIG, Server, cpu_seconds, start, start_upstream
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer

WORKERS = (1, 2, 4)
CONNECTIONS = 32
MARKER = "workers"  # in the document
POLICIES = ("warn_and_continue", "hard_stop")


@dataclass
class Row:
    """Of one exchange: microseconds of CPU; ``calls``: what Redis was asked."""

    a_second: float
    proxy: float
    redis: float
    upstream: float
    calls: float


def start_workers(count: int, policy: str, upstream: int, redis: str, folder: Path) -> Server:
    port = free_port()
    config = {
        **PROXY_CONFIG,
        "server": {**PROXY_CONFIG["server"], "port": port, "workers": count},
        "upstream": {**PROXY_CONFIG["upstream"], "base_url": f"http://127.0.0.1:{upstream}"},
        "reliability": {
            "token_budget": {"policy": policy, "per_session": 10**9, "per_hour": 10**9},
        },
        "state": {"backend": "redis", "redis_url": redis},
    }
    file = folder / f"workers-{count}-{policy}.yaml"
    file.write_text(yaml.safe_dump(config))
    argv = [sys.executable, "-m", "mlx_stack_proxy", "serve", "--config", str(file)]
    server = start(f"{count} workers {policy}", port, argv, folder)
    server.wait_ready("/health", 300)
    return server


def calls_of(redis: RedisServer) -> int:
    """Scripts that Redis has run."""
    counted = "string.match(redis.call('INFO', 'commandstats'), 'cmdstat_evalsha:calls=(%d+)')"
    told = redis.ask("EVAL", f"return tonumber({counted} or 0)", "0")
    assert told is not None
    return int(told[1:])


async def measure(
    server: Server, redis: tuple[RedisServer, psutil.Process], upstream: Server, requests: int
) -> Row:
    async def load(count: int) -> float:
        outcome = await run_load(
            server.port, lambda n: chat_body("chunks=10 pace=0", True, n), CONNECTIONS, count
        )
        return outcome.seconds

    await load(requests // 4)  # warm
    parts = (server.cpu_seconds, lambda: cpu_seconds(redis[1]), upstream.cpu_seconds)
    before, asked = [part() for part in parts], calls_of(redis[0])
    seconds = await load(requests)
    used = [(part() - b) / requests * 1e6 for part, b in zip(parts, before, strict=True)]
    return Row(requests / seconds, *used, calls=(calls_of(redis[0]) - asked) / requests)


def table(rows: dict[tuple[str, int], list[Row]]) -> str:
    """The medians, as Markdown."""
    lines = [
        "| policy | workers | requests a second | CPU of the proxy | of Redis | of the upstream "
        "| calls of Redis |",
        "|---|---|---|---|---|---|---|",
    ]
    for (policy, count), found in rows.items():

        def middle(name: str, found: list[Row] = found) -> float:
            return statistics.median(getattr(row, name) for row in found)

        cells = [f"{middle(name):,.0f} µs" for name in ("proxy", "redis", "upstream")]
        carried, calls = f"{middle('a_second'):,.0f}", f"{middle('calls'):.2f}"
        lines.append(f"| `{policy}` | {count} | {carried} | {' | '.join(cells)} | {calls} |")
    return "\n".join(lines)


def measured(requests: int, rounds: int) -> dict[tuple[str, int], list[Row]]:
    rows: dict[tuple[str, int], list[Row]] = {}
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="mlx-stack-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        redis = RedisServer(folder)
        redis.start()
        stack.callback(redis.stop)
        assert redis._process is not None
        whole = (redis, psutil.Process(redis._process.pid))
        upstream = start_upstream(folder)
        stack.callback(upstream.stop)
        for policy in POLICIES:
            for count in WORKERS:
                server = start_workers(count, policy, upstream.port, redis.url, folder)
                try:
                    rows[policy, count] = [
                        asyncio.run(measure(server, whole, upstream, requests))
                        for _ in range(rounds)
                    ]
                finally:
                    server.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure.bench_workers")
    parser.add_argument("--requests", type=int, default=2000, help="of each, in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="with the markers")
    given = parser.parse_args()
    about = machine.about()
    command = machine.command("benchmarks.measure.bench_workers", sys.argv[1:])
    said = machine.heading({"command": command, **about})
    found = table(measured(given.requests, given.rounds))
    text = f"{said}\n\n{found}"
    print(text)
    if given.write:
        pages.write(given.write, {MARKER: text})


if __name__ == "__main__":
    main()
