"""What is measured of a server in one round. CPU is the process's own user and system time."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.cost import bodies, recorded
from benchmarks.cost.bodies import LONG, SHORT, MakeBatch
from benchmarks.cost.contestants import LITELLM, PROXY, Contestant
from benchmarks.cost.samples import Samples
from benchmarks.measure import load
from benchmarks.measure.servers import Server

CONNECTIONS = 16
# Seconds of one slice at scale 1: requests one after another, then at CONNECTIONS at once.
ALONE, CROWD = 0.12, 0.45
LEAST_ALONE, MOST_ALONE = 5, 60
MOST_CROWD, MOST_CROWD_WALL = 2000, 2.0
STREAMS_LONG, STREAMS_LONG_HEAVY, LONG_CONNECTIONS = 8, 2, 4
# First text: N streams share what a model server makes, so each has a piece every N ms.
TOKENS_A_SECOND, PIECES_OF_A_STREAM = 1000, (10, 30)
FIRST_TEXT_SECONDS = {1: 1.0, 16: 1.5, 100: 3.0}
SLOWEST = 60.0  # seconds after which one slice of one server is given up


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
CHUNK, FIRST, MEMORY, START = "chunk", "first", "memory", "start"
KINDS = (*REQUESTS, CHUNK, FIRST, MEMORY, START)


@dataclass(frozen=True)
class Load:
    """CPU and wall seconds a request, and how many were answered in a second."""

    cpu: float
    wall: float
    rate: float


async def of_requests(server: Server, make: MakeBatch, scale: float) -> Load:
    """Wall: the median of requests one after another; CPU and rate: of CONNECTIONS at once."""
    batch = make(LEAST_ALONE)
    await send(server, batch.prepare, CONNECTIONS, batch.path)
    cpu, alone = await timed(server, batch.measured, 1, batch.path)
    each = statistics.median(alone.took)
    more = int(ALONE * scale / each) - LEAST_ALONE
    if more > 0:
        batch = make(min(more, MOST_ALONE))
        await send(server, batch.prepare, CONNECTIONS, batch.path)
        cpu, alone = await timed(server, batch.measured, 1, batch.path)
        each = statistics.median(alone.took)
    # Where the machine is busy with other things, the CPU's time comes late.
    count = min(
        int(CROWD * scale / max(cpu / alone.requests, 1e-5)),
        int(MOST_CROWD_WALL * scale / each * CONNECTIONS),
        MOST_CROWD,
    )
    batch = make(max(CONNECTIONS, count))
    await send(server, batch.prepare, CONNECTIONS, batch.path)
    cpu, crowd = await timed(server, batch.measured, CONNECTIONS, batch.path)
    return Load(cpu / crowd.requests, each, crowd.requests / crowd.seconds)


async def timed(
    server: Server, requests: list[bytes], connections: int, path: str = load.CHAT_PATH
) -> tuple[float, load.Outcome]:
    """The CPU seconds of the server, and what came of it."""
    source = [load.http_request(server.port, body, server.headers, path) for body in requests]
    before = server.cpu_seconds()
    outcome = await load.drive(server.port, iter(source), connections, server.keep_alive)
    return server.cpu_seconds() - before, outcome


async def send(
    server: Server, requests: list[bytes], connections: int, path: str = load.CHAT_PATH
) -> None:
    if requests:
        await timed(server, requests, min(connections, len(requests)), path)


async def request_kind(
    server: Server, kind: str, turn: int, samples: Samples, scale: float
) -> None:
    found = await of_requests(server, REQUESTS[kind].make(), scale)
    samples.add(turn, server.name, f"cpu.{kind}", found.cpu)
    samples.add(turn, server.name, f"wall.{kind}", found.wall)
    samples.add(turn, server.name, f"rate.{kind}", found.rate)


async def chunk_kind(
    server: Server, contestant: Contestant, turn: int, samples: Samples, scale: float
) -> None:
    """What 490 more pieces cost; the short streams are measured here if `stream` wasn't asked."""
    short = samples.by_round(server.name, "cpu.stream").get(turn)
    if short is None:
        short = (await of_requests(server, bodies.plain(SHORT, 1, True), scale)).cpu
    count = STREAMS_LONG_HEAVY if contestant.heavy else STREAMS_LONG
    batch = bodies.plain(LONG, 1, True)(count)
    cpu, outcome = await timed(server, batch.measured, min(LONG_CONNECTIONS, count))
    samples.add(turn, server.name, "cpu.chunk", (cpu / outcome.requests - short) / (LONG - SHORT))


def pieces_of(streams: int, rng: random.Random) -> bytes:
    """A stream of some length; `streams` of them make TOKENS_A_SECOND together."""
    pace = streams * 1000 // TOKENS_A_SECOND
    directive = f"chunks={rng.randint(*PIECES_OF_A_STREAM)} pace={pace}"
    return load.chat_body(directive, True, rng.randrange(64))


async def first_text(
    server: Server, streams: int, turn: int, samples: Samples, scale: float
) -> None:
    """How long the first text takes while so many streams are open.

    One that ends is followed by another at once. Their lengths differ, so that they don't keep
    step; the seed is the round's, so that all servers get the same.
    """
    rng = random.Random(turn)
    few = [
        load.http_request(server.port, pieces_of(streams, rng), server.headers)
        for _ in range(4 * streams + 64)
    ]
    source: Iterator[bytes] = itertools.cycle(few)
    ramp = sum(PIECES_OF_A_STREAM) / 2 * streams / TOKENS_A_SECOND
    seconds = FIRST_TEXT_SECONDS[streams] * max(scale, 0.5)
    outcome = await load.run_open_streams(
        server.port,
        source,
        streams,
        ramp=ramp,
        seconds=seconds,
        keep_alive=server.keep_alive,
    )
    samples.add_pool(turn, server.name, f"first.{streams}", outcome.first_text)
    samples.add(turn, server.name, f"unanswered.{streams}", outcome.unanswered)


async def open_streams(server: Server, contestant: Contestant, turn: int, samples: Samples) -> None:
    """RSS with nobody there, and with so many streams open at once."""
    held = load.HeldStreams(server.port, server.headers)
    idle = settled_rss(server)
    samples.add(turn, server.name, "rss.idle", idle)
    if not contestant.open_streams:
        return
    try:
        await held.grow_to(contestant.open_streams, within=SLOWEST)
        many = settled_rss(server)
    finally:
        await held.close()
    samples.add(turn, server.name, "rss.more", many - idle)


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
