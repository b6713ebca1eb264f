"""The rounds: each starts the servers anew and takes every figure of each of them, in turns."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.servers import Server

from . import load, measure
from .contestants import FRAME, PROXY, Contestant, Missing
from .goals import UPSTREAM
from .measure import CHUNKS, FIRST, MEMORY, REQUESTS, START, Round
from .samples import Samples

WARM_UP = 0.6  # seconds
SLOWEST = 120.0  # seconds after which one slice of one server is given up
# What a proxy in good order has no reason to do while it is measured.
UNEXPECTED = re.compile(
    r"^mlx_stack_(retries|escalations|loops|truncations|tool_call_failures|stage_faults|store_errors)_total"
    r"(?:\{.*\})? ([0-9.e+]+)$",
    re.MULTILINE,
)


@dataclass
class Bench:
    """`notes`: a line for each thing that did not come about; `unexpected`: see UNEXPECTED."""

    upstream: Server
    folder: Path
    contestants: list[Contestant]
    kinds: frozenset[str]
    until: float  # time.monotonic(); nothing is begun after it
    samples: Samples = field(default_factory=Samples)
    notes: list[str] = field(default_factory=list)
    unexpected: Counter[str] = field(default_factory=Counter)
    _failed: set[tuple[str, str]] = field(default_factory=set)

    async def round(self, turn: int, scale: float, staying: dict[str, Server]) -> None:
        """`staying`: those that are running already; all others live for this round only."""
        with contextlib.ExitStack() as stack:
            running: list[tuple[Contestant, Server]] = []
            for contestant in self.contestants:
                server = staying.get(contestant.name)
                if not contestant.stays and (server := self.start(contestant, turn)):
                    stack.enter_context(server)
                if server is not None:
                    running.append((contestant, server))
            if turn % 2 == 0:
                running.reverse()
            for contestant, server in running:
                least = 0 if turn else contestant.warm_up
                warming = measure.warm_up(server, WARM_UP, least)
                await self.guard(server, "warm-up", warming)
            await self._slices(Round(turn, self.samples, scale), running)
            for contestant, server in running:
                if contestant.name in (PROXY, FRAME):
                    self.look_for_unexpected(server)
        for contestant in self.contestants if MEMORY in self.kinds and turn == 0 else ():
            # A server that has been measured has grown, and may be busy with what was left.
            if not contestant.stays and (fresh := self.start(contestant, 0)):
                with fresh:
                    await self.guard(fresh, "warm-up", measure.warm_up(fresh, WARM_UP))
                    await self.memory(contestant, fresh)

    def start(self, contestant: Contestant, turn: int) -> Server | None:
        """None, with a note, for what can't be started; it is not tried again."""
        if (contestant.name, START) in self._failed:
            return None
        folder = self.folder / f"round-{turn}"
        folder.mkdir(exist_ok=True)
        try:
            server = contestant.start(self.upstream.port, folder)
        except (Missing, RuntimeError) as error:
            self._failed.add((contestant.name, START))
            self.note(f"{contestant.name}: {error}")
            return None
        if START in self.kinds:
            self.samples.add(turn, contestant.name, "start.wall", server.ready_after)
            self.samples.add(turn, contestant.name, "start.cpu", server.cpu_seconds())
        return server

    async def memory(self, contestant: Contestant, server: Server) -> None:
        taking = Round(0, self.samples, 1.0).memory(server, contestant.open_streams)
        await self.guard(server, MEMORY, taking)

    async def _slices(self, of: Round, running: list[tuple[Contestant, Server]]) -> None:
        """A slice of one figure is taken of every server before the next figure's."""
        for kind in [one for one in REQUESTS if one in self.kinds]:
            only = REQUESTS[kind].only
            for _, server in running:
                if not only or server.name in only:
                    await self.guard(server, kind, of.requests(server, kind))
        for kind in [one for one in CHUNKS if one in self.kinds]:
            for contestant, server in running:
                await self.guard(server, kind, of.chunks(server, contestant, kind))
        self.upstream.name = UPSTREAM
        who = [self.upstream, *(server for one, server in running if one.first_text)]
        for streams in measure.FIRST_TEXT_SECONDS if FIRST in self.kinds else ():
            for server in who:
                await self.guard(server, f"{FIRST}.{streams}", of.first_text(server, streams))

    async def guard(self, server: Server, kind: str, taking: Coroutine[None, None, None]) -> None:
        """A server that fails at something is not asked for it again; the rest goes on."""
        left = self.until - time.monotonic()
        if (server.name, kind) in self._failed or left <= 0:
            taking.close()
            return
        try:
            async with asyncio.timeout(min(left, SLOWEST)):
                await taking
        except (TimeoutError, OSError, load.LoadError) as error:
            self._failed.add((server.name, kind))
            said = " ".join(str(error).split())[:200] or type(error).__name__
            self.note(f"{server.name}, {kind}: {said}")

    def look_for_unexpected(self, server: Server) -> None:
        try:
            with urllib.request.urlopen(f"{server.url}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError as error:
            self.note(f"{server.name}: no metrics: {error}")
            return
        for name, value in UNEXPECTED.findall(text):
            if float(value):
                self.unexpected[f"{server.name}: {name}"] += int(float(value))

    def note(self, line: str) -> None:
        self.notes.append(line)
        print(f"  {line}", flush=True)


@dataclass
class Clock:
    """Sees to it that all of it ends in time: smaller slices where the machine is slow."""

    until: float  # time.monotonic()
    scale: float = 1.0
    least: float = 0.3

    def after_round(self, took: float, left: int) -> bool:
        """Whether `left` more rounds still fit, made smaller if they must be."""
        there = max(self.until - time.monotonic(), 0)
        if left * took <= there:
            return True
        smaller = max(self.least, self.scale * there / (left * took))
        took *= smaller / self.scale
        self.scale = smaller
        return took <= there
