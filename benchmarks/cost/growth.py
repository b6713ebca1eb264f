"""How the proxy's cost grows: with the history, the tools, a stream's length; all of it is new.

How it grows with the sessions in the store: ``make bench-state``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.servers import Server

from . import bodies, contestants, measure
from .bodies import Batch, MakeBatch
from .measure import Round

SECONDS = 0.3  # of CPU, at scale 1, for a point
CONNECTIONS = 8
LEAST, MOST = 8, 1000
STREAM_PIECES = 6000  # of a stream's point, at scale 1, in all its streams
STREAM_CONNECTIONS = 4
WINDOW = 1_000_000  # tokens: no history of these is to be too long for the first tier
TIERS = {name: {**tier, "context_window": WINDOW} for name, tier in contestants.TIERS.items()}
SETTINGS_SAID = f"for the growth: context_window {WINDOW:,}"


@dataclass(frozen=True)
class Axis:
    """What grows, in sizes of one ratio. ``make``: requests of a size."""

    name: str
    label: str
    xs: tuple[int, ...]
    make: Callable[[int], MakeBatch]

    def figure(self, x: int) -> str:
        return f"grow.{self.name}.{x}"


HISTORY = Axis(
    "unseen",
    "messages of history",
    (25, 50, 100, 200, 400, 800),
    lambda x: bodies.unseen(x, bodies.MESSAGE_BYTES),
)
TOOLS = Axis(
    "new-tools",
    "tools offered",
    (5, 10, 20, 40, 80, 160),
    lambda x: bodies.offering(x, new=True),
)
STREAM = Axis(
    "stream", "pieces of a stream", (10, 40, 160, 640, 2560), lambda x: bodies.plain(x, 1, True)
)
AXES = (HISTORY, TOOLS, STREAM)


async def measure_axis(of: Round, server: Server, axis: Axis) -> None:
    """Take each point once, in one direction or the other."""
    for x in axis.xs if of.turn % 2 else axis.xs[::-1]:
        of.add(server, axis.figure(x), await of_point(server, axis, x, of.scale))


async def of_point(server: Server, axis: Axis, x: int, scale: float) -> float:
    """CPU seconds a request."""
    make = axis.make(x)
    if axis is STREAM:
        count = max(STREAM_CONNECTIONS, int(STREAM_PIECES * scale / x))
        return await of_batch(server, make(min(count, 200)), STREAM_CONNECTIONS)
    first = await of_batch(server, make(LEAST), CONNECTIONS)
    count = int(SECONDS * scale / max(first, 1e-5))
    if count <= LEAST:
        return first
    return await of_batch(server, make(min(count, MOST)), CONNECTIONS)


async def of_batch(server: Server, batch: Batch, connections: int) -> float:
    await measure.send(server, batch.prepare, connections)
    cpu, outcome = await measure.timed(server, batch.measured, connections)
    return cpu / outcome.requests
