"""Where to commit: on the event loop or in a thread, alone and while another process fills a disk.

``python -m benchmarks.measure.bench_commit``: CPU of an exchange's write, how long a client waits
for it, and how long it holds the event loop (all clients), with 500 writes a second.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Change, Limit, Settlement, Sizes

WRITES = 5_000
SESSIONS = 10_000
PAUSE = 0.002  # seconds between two writes
FILLED = 300 * 1024 * 1024  # bytes of the file that the other process writes and syncs


class CommitsOnLoop(SqliteStore):
    async def open(self) -> None:
        await super().open()
        self._transactions._in_thread = self._in_place  # type: ignore[method-assign]

    def _in_place(self, work: Callable[[], None], jobs: list[Any]) -> None:
        work()
        self._transactions._end(jobs)


def fill_disk(folder: str) -> None:
    block = os.urandom(1024 * 1024)
    while True:
        with open(Path(folder) / "filled", "wb") as file:
            for _ in range(FILLED // len(block)):
                file.write(block)
            os.fsync(file.fileno())


async def write(store: SqliteStore, number: int) -> None:
    name, now = f"{number * 7919 % SESSIONS:032x}", time.time()
    amounts = {Limit(f"session:{name}", None, False): 321, Limit("hour", None, True): 321}
    await store.write(Change(name, 1, "fast", settlement=Settlement("", amounts)), now)


async def measure(label: str, store: SqliteStore) -> None:
    """Print one row."""
    held: list[float] = []
    transact = store._transactions._transact

    def timed() -> None:
        started = time.perf_counter()
        transact()
        held.append(time.perf_counter() - started)

    await store.open()
    for number in range(SESSIONS):
        await write(store, number)
    store._transactions._transact = timed  # type: ignore[method-assign]
    waited, cpu = [], []
    for number in range(WRITES):
        started = time.process_time(), time.perf_counter()
        await write(store, number)
        cpu.append(time.process_time() - started[0])
        waited.append(time.perf_counter() - started[1])
        await asyncio.sleep(PAUSE)
    await store.close()
    figures = [median(cpu), *figures_of(waited), *figures_of(held)]
    print(f"{label:32}" + "".join(f"{figure * 1e6:11,.0f}" for figure in figures), flush=True)


def figures_of(values: list[float]) -> list[float]:
    values.sort()
    return [median(values), values[len(values) * 99 // 100], values[-1]]


async def main() -> None:
    columns = ("CPU", "waits", "p99", "longest", "holds", "p99", "longest")
    print(f"{'µs':32}" + "".join(f"{column:>11}" for column in columns))
    sizes = Sizes(2 * SESSIONS, 86_400.0, 1e6, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        for disk in ("", ", disk busy"):
            other = multiprocessing.Process(target=fill_disk, args=(folder,), daemon=True)
            if disk:
                other.start()
            for where, make in (("on the loop", CommitsOnLoop), ("in a thread", SqliteStore)):
                path = Path(folder) / f"{where}{disk}.db"
                await measure(f"{where}{disk}", make(str(path), sizes))
            if disk:
                other.kill()


if __name__ == "__main__":
    uvloop.run(main())
