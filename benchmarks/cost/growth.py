"""How the proxy's cost grows: with the history, the tools, the sessions, a stream's length."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import Server
from mlx_stack_proxy.engine.session_id import digest
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Change, Limit, Settlement, Sizes, StoreError
from tests.support.storing import commit

from . import bodies, contestants, load, measure
from .bodies import Batch, MakeBatch
from .measure import Round

SECONDS = 0.3  # of CPU, at scale 1, for a point
CONNECTIONS = 8
LEAST, MOST = 8, 1000
STREAM_PIECES = 6000  # of a stream's point, at scale 1, in all its streams
STREAM_CONNECTIONS = 4
SESSION_REQUESTS = 250
WINDOW = 1_000_000  # tokens: no history of these is to be too long for the first tier
FILL_AT_ONCE = 1_000


@dataclass(frozen=True)
class Axis:
    """What grows, in sizes of one ratio, of which the proxy sees all for the first time."""

    name: str
    label: str
    xs: tuple[int, ...]


UNSEEN, NEW_TOOLS, STREAM, SESSIONS = "unseen", "new-tools", "stream", "sessions"
AXES = (
    Axis(UNSEEN, "messages of history", (25, 50, 100, 200, 400, 800)),
    Axis(NEW_TOOLS, "tools offered", (5, 10, 20, 40, 80, 160)),
    Axis(STREAM, "pieces of a stream", (10, 40, 160, 640, 2560)),
    Axis(SESSIONS, "sessions in the store", (1_000, 10_000, 100_000)),
)

# The settings that are not the defaults, beside max_connections and max_concurrency.
TIERS = {name: {**tier, "context_window": WINDOW} for name, tier in contestants.TIERS.items()}


def settings_said() -> str:
    most = max(AXES[-1].xs)
    return (
        f"for the growth: context_window {WINDOW:,}; for the sessions: loop_detection.max_sessions"
        f" {2 * most:,}"
    )


def figure(axis: str, x: int) -> str:
    return f"grow.{axis}.{x}"


def batches(axis: str, x: int) -> MakeBatch:
    if axis == UNSEEN:
        return bodies.unseen(x, bodies.MESSAGE_BYTES)
    if axis == NEW_TOOLS:
        return bodies.offering(x, new=True)
    return bodies.plain(x, 1, True)


class Growth:
    """The servers of this part, all started by `open`; `round` measures each point once."""

    def __init__(self, upstream: Server, folder: Path, wanted: frozenset[str]) -> None:
        self.upstream = upstream
        self.folder = folder
        self.axes = [axis for axis in AXES if axis.name in wanted]
        self.running: list[Server] = []
        self.of_sessions: dict[int, Server] = {}

    async def open(self, say: Callable[[str], None]) -> None:
        self.folder.mkdir()
        if any(axis.name != SESSIONS for axis in self.axes):
            server = contestants.proxy(self.upstream.port, self.folder, tiers=TIERS)
            self.proxy = self._started(server)
            await measure.warm_up(server, 0.5)
        for axis in self.axes:
            for x in axis.xs if axis.name == SESSIONS else ():
                began = time.monotonic()
                path, most = self.folder / f"sessions-{x}.db", 2 * max(axis.xs)
                await fill(SqliteStore(str(path), Sizes(most, 86_400.0, 1e6, 10_000)), x)
                server = contestants.proxy(
                    self.upstream.port,
                    self.folder,
                    state={"path": str(path)},
                    reliability={"loop_detection": {"max_sessions": most}},
                )
                self.of_sessions[x] = self._started(server)
                say(f"  {x:,} sessions: {time.monotonic() - began:.1f} s to make and start")
                await measure.warm_up(server, 0.5)

    def _started(self, server: Server) -> Server:
        self.running.append(server)
        return server

    async def round(self, of: Round) -> None:
        for axis in self.axes:
            for x in axis.xs if of.turn % 2 else axis.xs[::-1]:
                if axis.name == SESSIONS:
                    cpu = await of_sessions(self.of_sessions[x], x, of.turn, of.scale)
                    of.add(self.of_sessions[x], figure(axis.name, x), cpu)
                    continue
                cpu = await of_point(self.proxy, axis.name, x, of.scale)
                of.add(self.proxy, figure(axis.name, x), cpu)

    def close(self) -> None:
        for server in self.running:
            server.stop()


async def fill(store: SqliteStore, count: int) -> None:
    """Write a state file with so many sessions, named as `session` names them."""
    await store.open()
    now = time.time()
    delta = Change(turns=1, tier="fast")
    for first in range(0, count, FILL_AT_ONCE):
        commits = []
        for number in range(first, min(first + FILL_AT_ONCE, count)):
            name = digest("", session(number))
            limit = Limit(f"session:{name}", None, rolling=False)
            commits.append(commit(store, name, delta, now, Settlement("none", {limit: 4321})))
        for done in await asyncio.gather(*commits, return_exceptions=True):
            # Where the disk was slow to answer, it is written yet: by the end of `close`.
            if isinstance(done, BaseException) and not isinstance(done, StoreError):
                raise done
    await store.close()


def session(number: int) -> str:
    return f"session-{number:06d}"


async def of_point(server: Server, axis: str, x: int, scale: float) -> float:
    """CPU seconds a request."""
    make = batches(axis, x)
    if axis == STREAM:
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


async def of_sessions(server: Server, sessions: int, turn: int, scale: float) -> float:
    """CPU seconds of a plain request of one of the sessions that are there, any of them."""
    rng = random.Random(turn)
    body = bodies.plain(bodies.SHORT, 0)(1).measured[0]
    count = max(LEAST, int(SESSION_REQUESTS * scale))
    source = []
    for _ in range(count):
        named = f"x-mlx-stack-session: {session(rng.randrange(sessions))}\r\n"
        source.append(load.http_request(server.port, body, named))
    before = server.cpu_seconds()
    await load.drive(server.port, iter(source), CONNECTIONS)
    return (server.cpu_seconds() - before) / count
