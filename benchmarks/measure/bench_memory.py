"""What watching the memory costs: ``python -m benchmarks.measure.bench_memory``.

Prints the processor time of a look by each reader, event loop and thread together, and its share of
one core at the default interval; then what a request pays for it while all is well.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import timeit
from collections.abc import Callable
from typing import Any

from mlx_stack_proxy.driver import response_headers
from mlx_stack_proxy.engine.pipeline import Conditions
from mlx_stack_proxy.engine.steps import Start
from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.memory_pressure.pressure import Reading
from mlx_stack_proxy.memory_pressure.probe import MemoryProbe
from mlx_stack_proxy.memory_pressure.readers import (
    HostMemory,
    LinuxMemory,
    MemoryReader,
    Threaded,
    this_machine,
)
from mlx_stack_proxy.memory_pressure.stage import MemoryPressure
from mlx_stack_proxy.settings import MemoryPressureSettings
from mlx_stack_proxy.settings_source import from_mapping
from tests.engine.exchanges import client_request, exchange
from tests.support.scripted_server import Reply, ScriptedServer

LOOKS, ROUNDS = 400, 5
CALLS = 200_000


class Empty:
    """A reader that does nothing: the thread and the probe alone."""

    name = "nothing (the probe and its thread alone)"

    def read(self) -> Reading:
        return Reading()


async def look_seconds(reader: MemoryReader) -> float:
    """Processor time of one look, the median of the rounds."""
    rules = MemoryPressureSettings()
    probe = MemoryProbe(rules, reader, time.monotonic)
    await probe.look()
    rounds = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(LOOKS):
            await probe.look()
        rounds.append((time.process_time() - begun) / LOOKS)
    await probe.close()
    return statistics.median(rounds)


async def looks() -> None:
    print(f"{'reader':44} {'a look':>10} {'of a core':>10}")
    readers: list[MemoryReader] = [Threaded(Empty())]
    machine = this_machine()
    if machine is not None:
        readers.append(Threaded(machine))
    if isinstance(machine, LinuxMemory):
        import psutil

        with_swap = LinuxMemory(swap=psutil.swap_memory)
        with_swap._swap = psutil.swap_memory  # also where this machine has none
        with_swap.name += ", with psutil's swap"
        readers.append(Threaded(with_swap))
    for reader in readers:
        say(reader.name, await look_seconds(reader))
    async with ScriptedServer() as host:
        host.always(Reply.json({"level": "normal"}))
        say("host (both ends of the HTTP call)", await look_seconds(HostMemory(host.url)))


def say(name: str, seconds: float) -> None:
    share = seconds / MemoryPressureSettings().interval_seconds
    print(f"{name:44} {seconds * 1e6:7.0f} µs {share:10.5%}")


def a_request_pays() -> None:
    probe = MemoryProbe(MemoryPressureSettings(), None, time.monotonic)
    settings = from_mapping({})
    one, view, begin = exchange(client_request(size=100)), TierView(), Start("fast")
    stage = MemoryPressure(settings)

    def whole() -> None:
        stage.admit(one, begin, Conditions(view, memory_is_short=probe.pressure.sustained))
        if probe.pressure.level:
            response_headers.of_pressure(probe.pressure)

    print(f"\na request, while all is well: {each(whole) * 1e9:.0f} ns")


def each(function: Callable[[], Any]) -> float:
    return min(timeit.repeat(function, number=CALLS, repeat=ROUNDS)) / CALLS


if __name__ == "__main__":
    asyncio.run(looks())
    a_request_pays()
