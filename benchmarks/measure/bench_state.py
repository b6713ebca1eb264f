"""What keeping state costs: ``make bench-state``.

An exchange loads its session with two scopes' counts, reserves in both, and commits and settles in
one (under any policy but ``hard_stop`` it doesn't reserve). For each backend, alone
and with 64 exchanges at once: CPU time of the event loop's thread and of the whole process for an
exchange, in the median of ten rounds; of the whole process in the best of them too, which is what
it costs where nobody else slows the machine down; exchanges a second, and how long one takes. Then
the store is filled, with 100,000 sessions if nothing else is said; the same figures on the way show
whether they stay flat.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import redis
import uvloop

from benchmarks import machine, pages
from mlx_stack_proxy.state.redis import RedisStore
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Change, Limit, Settlement, Sizes, Sticky, Store
from tests.support.redis_server import RedisServer

MARKER = "state"
ROUNDS = 10
EXCHANGES = 400  # in each
NAME = "{:032x}"  # as long as a session's hash
COLUMNS = ("CPU loop", "CPU all", "at best", "a second", "median", "p99")


async def exchange(store: Store, number: int, tag: str) -> float:
    """The seconds it took."""
    started = time.perf_counter()
    now = time.time()
    name = NAME.format(number)
    limits = [
        Limit(f"session:{name}", 10**9, rolling=False),
        Limit("hour", 10**12, rolling=True),
    ]
    await store.load(name, now, limits)
    await store.reserve(tag, limits, 500, now, now + 600, least=1)
    spent = Settlement(tag, dict.fromkeys(limits, 321))
    await store.write(Change(name, 1, "fast", settlement=spent), now)
    return time.perf_counter() - started


async def measure(store: Store, sessions: int, at_once: int) -> list[str]:
    """A row's figures."""
    took: list[float] = []
    each = EXCHANGES // at_once

    async def one_after_the_other(worker: int, first: int) -> None:
        for n in range(first, first + each):
            number = (worker * 7919 + n * 104_729) % sessions
            took.append(await exchange(store, number, f"{worker}:{n}"))

    rounds = []
    for number in range(ROUNDS):
        before = (time.perf_counter(), time.thread_time(), time.process_time())
        workers = (one_after_the_other(worker, number * each) for worker in range(at_once))
        await asyncio.gather(*workers)
        after = (time.perf_counter(), time.thread_time(), time.process_time())
        spent = zip(before, after, strict=True)
        rounds.append([(end - start) / (each * at_once) for start, end in spent])
    wall, loop_cpu, cpu = (median(of_rounds) for of_rounds in zip(*rounds, strict=True))
    micros = (loop_cpu, cpu, min(cpu for _, _, cpu in rounds))
    late = sorted(took)[len(took) * 99 // 100]
    return [
        *(f"{value * 1e6:.0f} µs" for value in micros),
        f"{1 / wall:.0f}",
        *(f"{value * 1e3:.2f} ms" for value in (median(took), late)),
    ]


async def fill(store: Store, first: int, last: int) -> None:
    """Sessions as a client leaves them that has been moved: the largest there are."""
    now = time.time()
    sticky = {"auto": Sticky("standard", now + 300)}

    async def one(number: int) -> None:
        name = NAME.format(number)
        spent = Settlement("none", {Limit(f"session:{name}", None, rolling=False): 54_321})
        await store.write(Change(name, 1, "standard", sticky=sticky, settlement=spent), now)

    for start in range(first, last, 64):
        await asyncio.gather(*(one(n) for n in range(start, min(start + 64, last))))


async def bench(label: str, store: Store, most: int, size: Callable[[], int] | None = None) -> str:
    """Return a store's table. ``size``: the bytes that it takes once it is filled."""
    await store.open()
    assert store.health.sentence is None, store.health.sentence
    rows: list[list[str]] = []
    filled = 0
    for sessions in [n for n in (1_000, 10_000, 100_000, 1_000_000) if n <= most] or [most]:
        await fill(store, filled, sessions)
        filled = sessions
        for at_once, how in ((1, "alone"), (64, "64 at once")):
            figures = await measure(store, sessions, at_once)
            rows.append([f"{sessions:,} sessions, {how}", *figures])
    await store.close()
    taken = f"\n\n{size() / filled:.0f} bytes a session" if size else ""
    return pages.table([label, *COLUMNS], rows) + taken


def memory_of(server: RedisServer) -> int:
    with redis.Redis(port=server.port) as asked:
        return int(asked.info("memory")["used_memory"])


async def tables(most: int) -> list[str]:
    sizes = Sizes(2 * most, 86_400.0, 1e6, 10_000)
    found = [await bench("memory", SqliteStore(None, sizes), most)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        store = SqliteStore(str(path), sizes)
        found.append(await bench("sqlite", store, most, lambda: path.stat().st_size))
        del store
        gc.collect()
        started = time.perf_counter()
        again = SqliteStore(str(path), sizes)
        await again.open()
        found.append(f"{time.perf_counter() - started:.2f} s to open the file")
        await again.close()
    if shutil.which("redis-server") is None:
        return [*found, "redis: the program redis-server is missing"]
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
        empty, there = memory_of(server), RedisStore(server.url, sizes)
        return [*found, await bench("redis", there, most, lambda: memory_of(server) - empty)]


def main() -> int:
    parser = machine.options("benchmarks.measure.bench_state", __doc__, write=True)
    parser.add_argument("sessions", type=int, nargs="?", default=100_000)
    options = parser.parse_args()
    about = {"rounds": f"{ROUNDS} of {EXCHANGES} exchanges a row"}
    found = uvloop.run(tables(options.sessions))
    pages.publish(
        "benchmarks.measure.bench_state", {MARKER: "\n\n".join(found)}, options.write, about
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
