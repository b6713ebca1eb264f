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
from .bodies import LONG, SHORT, MakeBatch
from .contestants import LITELLM, PROXY, Contestant
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
    """`label`: what it says. `only`: the servers that it is measured of, all where it is empty."""

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
    "call": Kind(
        f"tool call, {bodies.FEW_TOOLS} tools offered",
        lambda: bodies.offering(bodies.FEW_TOOLS),
    ),
    "tools": Kind(
        f"tool call, {bodies.MANY_TOOLS} tools offered",
        lambda: bodies.offering(bodies.MANY_TOOLS),
    ),
    "history": Kind("30 KB of history, all new", lambda: bodies.history_of(bodies.HISTORY_BYTES)),
    "seen": Kind(
        f"{bodies.MESSAGES} messages, all but 2 seen",
        lambda: bodies.seen(bodies.MESSAGES, bodies.MESSAGE_BYTES),
    ),
}
if recorded.are_there():
    REQUESTS |= {**_of_agent("claude", recorded.CLAUDE), **_of_agent("codex", recorded.CODEX)}
# What further pieces of a stream cost: by the name, streams of so many.
CHUNKS: dict[str, Callable[[int], MakeBatch]] = {
    "chunk": lambda pieces: bodies.plain(pieces, 1, True),
    "call-chunk": lambda pieces: bodies.offering(bodies.FEW_TOOLS, streamed=pieces),
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


async def send(
    server: Server, requests: list[bytes], connections: int, path: str = load.CHAT_PATH
) -> None:
    if requests:
        await timed(server, requests, connections, path)


async def of_requests(server: Server, make: MakeBatch, scale: float) -> tuple[float, float, float]:
    """CPU and wall seconds a request, and how many were answered in a second.

    Wall: the median of requests one after another; CPU and rate: of CONNECTIONS at once.
    """

    async def of(count: int, connections: int) -> tuple[float, load.Outcome]:
        batch = make(count)
        await send(server, batch.prepare, CONNECTIONS, batch.path)
        return await timed(server, batch.measured, connections, batch.path)

    cpu, alone = await of(LEAST_ALONE, 1)
    more = int(ALONE * scale / statistics.median(alone.took)) - LEAST_ALONE
    if more > 0:
        cpu, alone = await of(min(more, MOST_ALONE), 1)
    wall = statistics.median(alone.took)
    # Where the machine is busy with other things, the CPU's time comes late.
    count = min(
        int(CROWD * scale / max(cpu / alone.requests, 1e-5)),
        int(MOST_CROWD_WALL * scale / wall * CONNECTIONS),
        MOST_CROWD,
    )
    cpu, crowd = await of(max(CONNECTIONS, count), CONNECTIONS)
    return cpu / crowd.requests, wall, crowd.requests / crowd.seconds


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
        cpu, outcome = await timed(server, make(LONG)(count).measured, LONG_CONNECTIONS)
        self.add(server, f"cpu.{kind}", (cpu / outcome.requests - short) / (LONG - SHORT))

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
            await send(server, bodies.plain(SHORT, 0, stream)(16).measured, 4)
            sent += 16
