"""What is measured of each server, one round at a time, and how the rounds become figures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.bench import load
from tests.bench.servers import Server

SHORT, LONG = 10, 500
CONNECTIONS = 16


@dataclass(frozen=True)
class Size:
    """How much load one round puts on one server."""

    requests: int
    short_streams: int
    long_streams: int
    long_connections: int
    first_texts: int

    def scaled(self, factor: float) -> Size:
        return Size(
            *(max(4, int(value * factor)) for value in (self.requests, self.short_streams)),
            max(2, int(self.long_streams * factor)),
            self.long_connections,
            max(40, int(self.first_texts * factor)),
        )


LIGHT = Size(600, 450, 16, 8, 100)
HEAVY = Size(32, 24, 2, 2, 20)  # for a server that needs ten times the CPU


@dataclass
class Rounds:
    """Every round's value of every figure, of one server."""

    server: str
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, figure: str, value: float) -> None:
        self.values.setdefault(figure, []).append(value)

    def median(self, figure: str) -> float | None:
        values = self.values.get(figure)
        return statistics.median(values) if values else None


async def measure_cpu(
    server: Server, make_body: Callable[[int], bytes], connections: int, requests: int
) -> tuple[float, load.Outcome]:
    before = server.cpu_seconds()
    outcome = await load.run_load(server.port, make_body, connections, requests)
    return server.cpu_seconds() - before, outcome


def body_maker(chunks: int, pace: int, stream: bool) -> Callable[[int], bytes]:
    directive = f"chunks={chunks} pace={pace}"
    return lambda number: load.chat_body(directive, stream, number)


async def request_slice(server: Server, size: Size, rounds: Rounds) -> None:
    body = body_maker(SHORT, 0, stream=False)
    cpu, outcome = await measure_cpu(server, body, CONNECTIONS, size.requests)
    rounds.add("cpu_request", cpu / outcome.requests)
    rounds.add("requests_per_second", outcome.requests / outcome.seconds)


async def paced_request_slice(server: Server, size: Size, rounds: Rounds) -> None:
    body = body_maker(SHORT, 1, stream=False)
    cpu, outcome = await measure_cpu(server, body, CONNECTIONS, size.requests // 2)
    rounds.add("cpu_request_paced", cpu / outcome.requests)


async def stream_slice(server: Server, size: Size, rounds: Rounds) -> None:
    body = body_maker(SHORT, 1, stream=True)
    cpu, outcome = await measure_cpu(server, body, CONNECTIONS, size.short_streams)
    rounds.add("cpu_stream", cpu / outcome.requests)


async def chunk_slice(server: Server, size: Size, rounds: Rounds) -> None:
    """After `stream_slice`, whose figure of this round is what a stream costs besides chunks."""
    body = body_maker(LONG, 1, stream=True)
    cpu, outcome = await measure_cpu(server, body, size.long_connections, size.long_streams)
    short = rounds.values["cpu_stream"][-1]
    rounds.add("cpu_chunk", (cpu / outcome.requests - short) / (LONG - SHORT))
    rounds.add("chunks_per_read", LONG * outcome.requests / outcome.reads)


async def first_text_slice(server: Server, size: Size, rounds: Rounds) -> None:
    await first_text_round(server, size.first_texts, rounds)


# A slice of one figure is taken of every server before the next figure's: what is compared was
# measured within seconds of each other.
SLICES = (request_slice, paced_request_slice, stream_slice, chunk_slice, first_text_slice)


async def first_text_round(server: Server, count: int, rounds: Rounds) -> None:
    """Time to the first text, one request at a time."""
    outcome = await load.run_load(server.port, body_maker(3, 0, stream=True), 1, count)
    times = sorted(outcome.first_text)
    rounds.add("first_text_p50", statistics.median(times))
    rounds.add("first_text_p99", times[min(len(times) - 1, round(len(times) * 0.99))])


def settled_rss(server: Server) -> int:
    """RSS when it has stopped moving, or after 2 s."""
    last = server.rss()
    for _ in range(10):
        time.sleep(0.2)
        now = server.rss()
        if abs(now - last) < 65_536:
            return now
        last = now
    return last


async def measure_memory(server: Server, streams: int, within: float) -> dict[str, float]:
    """RSS with one stream open, and with `streams`; on a server that has been warmed up."""
    held = load.HeldStreams(server.port)
    try:
        await held.grow_to(1)
        at_one = settled_rss(server)
        await held.grow_to(streams, within=within)
        at_many = settled_rss(server)
    finally:
        await held.close()
    return {"rss_1": at_one, "rss_many": at_many, "rss_growth": at_many - at_one}
