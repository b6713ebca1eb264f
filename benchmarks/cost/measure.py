"""What is measured of a server in one round. CPU is the process's own user and system time."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.servers import Server

from . import bodies, load, recorded
from .bodies import FEW, LONG, MANY, MESSAGES, SHORT, Batch, MakeBatch
from .contestants import LITELLM, PROXY, TIERS, Contestant
from .samples import Samples

CONNECTIONS = 16
# Seconds of one slice at scale 1: requests one after another, then at CONNECTIONS at once.
ALONE, CROWD = 0.12, 0.45
LEAST_ALONE, MOST_ALONE = 5, 60
MOST_CROWD, MOST_CROWD_WALL = 2000, 2.0
STREAMS_LONG, STREAMS_LONG_HEAVY, LONG_CONNECTIONS = 8, 2, 4
# First text: N streams share what a model server makes, so each has a piece every N ms.
TOKENS_A_SECOND, PIECES_OF_A_STREAM = 1000, (10, 30)
FIRST_TEXT_SECONDS = {1: 1.0, 16: 1.5, 100: 3.0}


class Kind(NamedTuple):
    """`only`: the servers that it is measured of, all where it is empty."""

    label: str
    make: Callable[[], MakeBatch]
    only: tuple[str, ...] = ()


def _of_agent(kind: str, agent: recorded.Agent) -> dict[str, Kind]:
    """An agent's turns: LiteLLM translates them, too; the others speak chat completions alone."""
    title, both = f"{agent.title}'s first turn, at `{agent.path}`", (PROXY, LITELLM)
    return {
        kind: Kind(title, lambda: recorded.first(agent), both),
        f"{kind}.chat": Kind("… as a chat completion", lambda: recorded.as_chat(agent), both),
        f"{kind}.second": Kind("… its second turn", lambda: recorded.second(agent), both),
    }


# `paced` differs from `plain` for who asks upstream for a stream.
REQUESTS: dict[str, Kind] = {
    "plain": Kind(f"plain request, {SHORT} pieces at once", lambda: bodies.plain(SHORT, 0)),
    "paced": Kind(f"… its {SHORT} pieces 1 ms apart", lambda: bodies.plain(SHORT, 1)),
    "stream": Kind(f"… streamed, {SHORT} pieces 1 ms apart", lambda: bodies.plain(SHORT, 1, True)),
    "call": Kind(f"tool call, {FEW} tools offered", lambda: bodies.offering(FEW)),
    "tools": Kind(f"tool call, {MANY} tools offered", lambda: bodies.offering(MANY)),
    "history": Kind("30 KB of history, all new", lambda: bodies.history_of(bodies.HISTORY_BYTES)),
    "seen": Kind(f"{MESSAGES} messages, all but 2 seen", lambda: bodies.seen(MESSAGES)),
}
if recorded.are_there():
    REQUESTS |= {**_of_agent("claude", recorded.CLAUDE), **_of_agent("codex", recorded.CODEX)}
# What further pieces of a stream cost: by the name, streams of so many.
CHUNKS: dict[str, Callable[[int], MakeBatch]] = {
    "chunk": lambda pieces: bodies.plain(pieces, 1, True),
    "call-chunk": lambda pieces: bodies.offering(FEW, streamed=pieces),
}
FIRST, MEMORY, START = "first", "memory", "start"
KINDS = (*REQUESTS, *CHUNKS, FIRST, MEMORY, START)


async def timed(
    server: Server, requests: list[bytes], connections: int, path: str = load.CHAT_PATH
) -> tuple[float, load.Outcome]:
    """The CPU seconds of the server, and what came of it."""
    source = [load.http_request(server.port, body, server.headers, path) for body in requests]
    before = server.cpu_seconds()
    outcome = await load.drive(server.port, iter(source), min(connections, len(source)))
    return server.cpu_seconds() - before, outcome


async def of_batch(
    server: Server, batch: Batch, connections: int
) -> tuple[float, float, load.Outcome]:
    """CPU seconds a request, the median of the wall seconds, and what came of it."""
    if batch.prepare:
        await timed(server, batch.prepare, CONNECTIONS, batch.path)
    cpu, outcome = await timed(server, batch.measured, connections, batch.path)
    return cpu / outcome.requests, statistics.median(outcome.took), outcome


async def of_requests(server: Server, make: MakeBatch, scale: float) -> tuple[float, float, float]:
    """CPU and wall seconds a request, and how many were answered in a second.

    Wall: the median of requests one after another; CPU and rate: of CONNECTIONS at once.
    """
    cpu, wall, _ = await of_batch(server, make(LEAST_ALONE), 1)
    more = int(ALONE * scale / wall) - LEAST_ALONE
    if more > 0:
        cpu, wall, _ = await of_batch(server, make(min(more, MOST_ALONE)), 1)
    # Where the machine is busy with other things, the CPU's time comes late.
    longest = int(MOST_CROWD_WALL * scale / wall * CONNECTIONS)
    count = min(int(CROWD * scale / max(cpu, 1e-5)), longest, MOST_CROWD)
    cpu, _, crowd = await of_batch(server, make(max(CONNECTIONS, count)), CONNECTIONS)
    return cpu, wall, crowd.requests / crowd.seconds


@dataclass(frozen=True)
class Axis:
    """What grows, in sizes of one ratio. ``make``: requests of a size."""

    name: str
    label: str
    xs: tuple[int, ...]
    make: Callable[[int], MakeBatch]

    def figure(self, x: int) -> str:
        return f"grow.{self.name}.{x}"


# How the cost grows with what is all new; with the sessions in the store: ``make bench-state``.
HISTORY = Axis("unseen", "messages of history", (25, 50, 100, 200, 400, 800), bodies.unseen)
TOOLS = Axis(
    "new-tools", "tools offered", (5, 10, 20, 40, 80, 160), lambda x: bodies.offering(x, new=True)
)
STREAM = Axis(
    "stream", "pieces of a stream", (10, 40, 160, 640, 2560), lambda x: bodies.plain(x, 1, True)
)
AXES = (HISTORY, TOOLS, STREAM)
GROWTH_SECONDS, GROWTH_CONNECTIONS = 0.3, 8  # of CPU, at scale 1, for a point
LEAST_GROWTH, MOST_GROWTH = 8, 1000
STREAM_PIECES = 6000  # of a stream's point, at scale 1, in all its streams
STREAM_CONNECTIONS, MOST_STREAMS = 4, 200
WINDOW = 1_000_000  # tokens: no history of these is to be too long for the first tier
GROWTH_TIERS = {name: {**tier, "context_window": WINDOW} for name, tier in TIERS.items()}


async def of_point(server: Server, axis: Axis, x: int, scale: float) -> float:
    """CPU seconds a request."""
    make = axis.make(x)
    if axis is STREAM:
        count = max(STREAM_CONNECTIONS, int(STREAM_PIECES * scale / x))
        batch = make(min(count, MOST_STREAMS))
        return (await of_batch(server, batch, STREAM_CONNECTIONS))[0]
    first, *_ = await of_batch(server, make(LEAST_GROWTH), GROWTH_CONNECTIONS)
    count = int(GROWTH_SECONDS * scale / max(first, 1e-5))
    if count <= LEAST_GROWTH:
        return first
    return (await of_batch(server, make(min(count, MOST_GROWTH)), GROWTH_CONNECTIONS))[0]


@dataclass(frozen=True)
class Round:
    """Where one round's figures go. `scale`: of the slices' length."""

    turn: int
    samples: Samples
    scale: float

    def add(self, server: Server, figure: str, value: float) -> None:
        self.samples.add(self.turn, server.name, figure, value)

    async def requests(self, server: Server, kind: str) -> None:
        found = await of_requests(server, REQUESTS[kind].make(), self.scale)
        for name, value in zip(("cpu", "wall", "rate"), found, strict=True):
            self.add(server, f"{name}.{kind}", value)

    async def chunks(self, server: Server, contestant: Contestant, kind: str) -> None:
        """What 490 more pieces cost."""
        make = CHUNKS[kind]
        short, _wall, _rate = await of_requests(server, make(SHORT), self.scale)
        count = STREAMS_LONG_HEAVY if contestant.heavy else STREAMS_LONG
        cpu, *_ = await of_batch(server, make(LONG)(count), LONG_CONNECTIONS)
        self.add(server, f"cpu.{kind}", (cpu - short) / (LONG - SHORT))

    async def growth(self, server: Server, axis: Axis) -> None:
        """Take each point once, in one direction or the other."""
        for x in axis.xs if self.turn % 2 else axis.xs[::-1]:
            self.add(server, axis.figure(x), await of_point(server, axis, x, self.scale))

    async def first_text(self, server: Server, streams: int) -> None:
        """How long the first text takes while so many streams share TOKENS_A_SECOND.

        One that ends is followed by another at once. Their lengths differ, so that they don't keep
        step; the seed is the round's, so that all servers get the same.
        """
        rng = random.Random(self.turn)
        pace = streams * 1000 // TOKENS_A_SECOND
        few = []
        for _ in range(4 * streams + 64):
            directive = f"chunks={rng.randint(*PIECES_OF_A_STREAM)} pace={pace}"
            body = load.chat_body(directive, True, rng.randrange(64))
            few.append(load.http_request(server.port, body, server.headers))
        ramp = sum(PIECES_OF_A_STREAM) / 2 * streams / TOKENS_A_SECOND
        seconds = FIRST_TEXT_SECONDS[streams] * max(self.scale, 0.5)
        source = itertools.cycle(few)
        outcome = await load.open_streams(server.port, source, streams, ramp=ramp, seconds=seconds)
        self.samples.add_pool(self.turn, server.name, f"first.{streams}", outcome.first_text)
        self.add(server, f"unanswered.{streams}", outcome.unanswered)

    async def memory(self, server: Server, streams: int) -> None:
        """RSS with nobody there, and with so many streams open at once."""
        idle = settled_rss(server)
        self.add(server, "rss.idle", idle)
        held = await load.hold_streams(server.port, server.headers, streams)
        self.add(server, "rss.more", settled_rss(server) - idle)
        for connection in held:
            connection.leave()


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


async def warm_up(server: Server, seconds: float, least: int = 0) -> None:
    """So that no one's first requests are measured: caches fill, compilers begin."""
    for stream in (False, True):
        until, sent = time.monotonic() + seconds / 2, 0
        while time.monotonic() < until or sent < least:
            await timed(server, bodies.plain(SHORT, 0, stream)(16).measured, 4)
            sent += 16
