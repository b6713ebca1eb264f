"""What each thing that the process remembers takes: ``python -m benchmarks.measure.bench_kept``.

As the system counts it (RSS), each in a process of its own: compiled schemas are not Python's.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
from collections.abc import Callable

import psutil

from benchmarks.measure.bench_history import MESSAGES, transcript
from mlx_stack_proxy.loop_detection.history import HistoryReader
from mlx_stack_proxy.loop_detection.memory import LoopMemory
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Change, Limit, Settlement, Sizes
from mlx_stack_proxy.tool_validation.tools import tool_set
from mlx_stack_proxy.wire.blocks import Blocks
from tests.tool_validation.calls import parameters, tool

SESSIONS = 10_000
HISTORIES = 100
WINDOW = 10  # turns: the default window_size
TOOLS = 8  # of one request
SCHEMAS = 1_000


def sessions(*, window: bool) -> object:
    """As `memory` holds them, with their counts, and what loop detection remembers."""
    return asyncio.run(_sessions(window))


async def _sessions(window: bool) -> object:
    store = SqliteStore(None, Sizes(SESSIONS, 86_400.0, 1e6, 10_000))
    await store.open()
    remembered = LoopMemory(SESSIONS)
    for number in range(SESSIONS):
        name = f"{number:032x}"
        spent = Settlement(str(number), {Limit(f"session:{name}", 500_000, rolling=False): 100})
        await store.write(Change(name, 1, "fast", settlement=spent), 1.0)
        session = remembered.get(name)
        turns = HistoryReader().read("s", Blocks(transcript(2 * WINDOW))).turns if window else ()
        for at, turn in enumerate(turns):
            session.keep(str(at), turn, WINDOW)
    return store, remembered


def histories() -> object:
    reader = HistoryReader()
    for session in range(HISTORIES):
        run = [{**one, "content": f"{session} {one['content']}"} for one in transcript(MESSAGES)]
        for count in range(2, len(run) + 1, 40):
            reader.read(str(session), Blocks(run[:count]))
        reader.read(str(session), Blocks(run))
    return reader


def schemas() -> object:
    for number in range(SCHEMAS // TOOLS):
        names = [f"tool_{number}_{each}" for each in range(TOOLS)]
        offered = [tool(n, parameters("path", path="string", **{n: "integer"})) for n in names]
        found = tool_set(offered)
        for name in names:
            found.compiled(name)
    return None


THINGS: dict[str, tuple[Callable[[], object], int]] = {
    "a session that sends its transcript": (lambda: sessions(window=False), SESSIONS),
    f"a session with a window of {WINDOW} turns": (lambda: sessions(window=True), SESSIONS),
    f"what {MESSAGES} messages came to": (histories, HISTORIES),
    "a tool's compiled schema": (schemas, SCHEMAS),
}


def taken(name: str) -> float:
    """kB for one."""
    make, count = THINGS[name]
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    kept = make()
    gc.collect()
    after = process.memory_info().rss
    del kept
    return (after - before) / count / 1024


def main() -> None:
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name in THINGS:
            print(f"{name:42}{pool.apply(taken, (name,)):8.1f} kB")


if __name__ == "__main__":
    main()
