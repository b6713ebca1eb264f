"""``make soak``: 30 minutes of mixed load and faults; says whether the proxy stays as it is.

python -m benchmarks.soak --minutes 30 --redis --page

Ends by itself; everything is on this machine's loopback. The exit code is 1 where a figure grows by
more than 5 % after the warm-up (the first quarter), a client got what it should not have got, or
the proxy's report says something else than what the agents saw.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from benchmarks import machine, pages, servers
from benchmarks.soak import flat, process
from benchmarks.soak.clients import EXPECTED, SCENARIOS, Scenario
from benchmarks.soak.process import Proxy, by_label, metric
from benchmarks.soak.run import Soak
from benchmarks.upstream import Upstream
from mlx_stack_proxy.server import open_files
from tests.support.browser import Browser
from tests.support.redis_server import RedisServer

ROUND_SECONDS = 40.0
ROUNDS = 24  # at least, where the run is short
LIMITS = {
    process.CAPTURED: process.CAPTURED_KB,
    process.STATE: process.STATE_KB,
    process.LOG: process.LOG_KB,
    process.KEYS: process.REDIS_KEYS,
    process.THREADS: process.MOST_THREADS,
}
SHOWN = 10  # of what went wrong
COUNTED = ("retries", "escalations", "tool_call_repairs", "rescued_tool_calls", "loops",
           "truncations", "refused", "store_errors")  # fmt: skip


async def soak(
    minutes: float,
    folder: Path,
    store: RedisServer | None = None,
    *,
    seed: int = 1,
    page: bool = False,
    wrapper: Sequence[str] = (),
    scenarios: Sequence[Scenario] = SCENARIOS,
) -> Soak:
    """Run it. ``page``: with the proxy's page open in a browser. ``wrapper``: as of ``Proxy``."""
    async with Upstream() as upstream:
        proxy = Proxy(upstream.url, folder, store, wrapper)
        # Starting waits for it to answer, which may ask the upstream above in this very loop.
        await asyncio.to_thread(proxy.start)
        try:
            of_round = min(ROUND_SECONDS, minutes * 60 / ROUNDS)
            one = Soak(upstream, proxy, of_round, seed=seed, store=store, scenarios=scenarios)
            async with page_open(proxy, folder) if page else contextlib.nullcontext():
                await one.run(minutes * 60)
            return one
        finally:
            await asyncio.to_thread(proxy.server.stop)


@contextlib.asynccontextmanager
async def page_open(proxy: Proxy, folder: Path) -> AsyncIterator[None]:
    """The proxy's page in a browser, which has to be there at the end, too."""
    async with Browser(folder) as browser:
        await browser.open(f"{proxy.url}/mlx-stack/")
        await browser.until("return document.querySelector('.tier') !== null")
        yield
        await browser.until("return document.querySelector('.tier') !== null")


def report(found: Soak) -> bool:
    """Print what was found; whether all is well."""
    rows = []
    for name, ended in sorted(found.ended.items()):
        counts = (str(ended[word]) for word in (*EXPECTED, "wrong"))
        rows.append([name, *counts, f"{found.longest[name]:.1f}"])
    total = sum(ended.total() for ended in found.ended.values())
    print(f"\n{pages.table(['', *EXPECTED, 'wrong', 'longest (s)'], rows)}\n")
    print(
        f"{total:,} requests, {found.reloads} times other settings, {found.outages} outages, "
        f"{found.demotions} times a Redis without writes; {found.cpu_seconds:,.0f} s of CPU"
    )
    told = found.counted
    sums = {name.replace("_", " "): metric(told, f"mlx_stack_{name}_total") for name in COUNTED}
    sums |= by_label(told, "mlx_stack_requests_total", "outcome")
    print(f"The proxy counts {', '.join(f'{value:,.0f} {what}' for what, value in sums.items())}.")
    for line in list(dict.fromkeys(found.wrong))[:SHOWN]:
        print(f"WRONG {line}")
    print(f"\n{'':<44} {'agents saw':>10} {'report':>10}")
    for what, saw, said in found.rows:
        print(f"{what:<44} {saw:>10,} {said:>10,}  {'ok' if saw == said else 'WRONG'}")
    holds = all(saw == said for _, saw, said in found.rows)
    return is_flat(found) and holds and not found.wrong


def is_flat(found: Soak) -> bool:
    """Print how each figure went; whether all stayed as they were."""
    warm_up = flat.WARM_UP * max(at for one in found.figures.values() for at, _ in one)
    try:
        courses = {
            name: flat.course(one, warm_up, LIMITS.get(name)) for name, one in found.figures.items()
        }
    except ValueError as error:
        print(f"NOT FLAT: {error}")
        return False
    count = min(len(one) for one in found.figures.values())
    print(
        f"\nAt rest after each of {count} rounds; the first {warm_up / 60:.1f} minutes don't count."
    )
    print(f"{flat.table(courses)}\n")
    all_are, limit = all(one.is_flat for one in courses.values()), f"{flat.TOLERANCE:.0%}"
    print(f"Flat within {limit}." if all_are else f"NOT FLAT: something grew by more than {limit}.")
    return all_are


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--redis", action="store_true", help="state in a Redis, not in SQLite")
    parser.add_argument("--page", action="store_true", help="with the page open in Chromium")
    parser.add_argument("--seed", type=int, help="of the clients' chance")
    args = parser.parse_args()
    seed = random.randrange(2**32) if args.seed is None else args.seed
    open_files.raise_limit()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # of clients that have left
    state = "Redis" if args.redis else "SQLite"
    print(machine.heading({**machine.about(), "state": state, "seed": seed}), flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        with RedisServer(folder) if args.redis else contextlib.nullcontext() as store:
            servers.stop_with_us()
            found = asyncio.run(soak(args.minutes, folder, store, seed=seed, page=args.page))
    return 0 if report(found) else 1


if __name__ == "__main__":
    sys.exit(main())
