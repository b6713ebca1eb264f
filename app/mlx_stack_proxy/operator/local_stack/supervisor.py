"""Start children, wait until they are ready, and restart those that die.

The children of one :meth:`Supervisor.start` start side by side; then each gets a keeper, a task
that waits for the child's death or illness and starts it again. The delay before that doubles each
time, until the child has run for ``STEADY_SECONDS``.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import time
from asyncio import FIRST_COMPLETED
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self, TextIO

from ... import tasks
from ...printable import printable
from .. import CommandError
from . import guarded_process
from .children import ChildSpec
from .guarded_process import Lifeline
from .run_directory import shown

PROGRESS_SECONDS = 10.0  # between two lines about a child that isn't ready yet
HEALTH_SECONDS = 10.0  # between questions to a child that runs
FIRST_DELAY_SECONDS = 1.0  # before a restart
LONGEST_DELAY_SECONDS = 30.0
STEADY_SECONDS = 60.0  # a child that has run this long gets the first delay again
TAIL_LINES = 15  # of the log, when a child doesn't start


class StartFailed(CommandError):
    """A child didn't become ready; the message's lines say which, why, and how its log ends."""


class Console:
    """Writes plain lines to standard output; ``up`` goes on if the reader is gone.

    ``name_width``: the width of the column with the children's names.
    """

    def __init__(self, out: TextIO | None = None, name_width: int = 8) -> None:
        self._out, self._name_width = out, name_width

    def say(self, text: str = "") -> None:
        with contextlib.suppress(OSError, ValueError):
            print(text, file=self._out, flush=True)

    def child(self, name: str, state: str, detail: str) -> None:
        """Write a line about one child, in columns."""
        line = f"  {name:<{self._name_width}}  {state:<10} {detail}".rstrip()
        self.say("\n".join(map(printable, line.split("\n"))))


class Supervisor:
    """Starts and keeps the children of one stack, and ends them when its context ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lifeline = Lifeline()
        self._phases: list[list[_Child]] = []
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with self._lifeline:
            await self.stop()

    async def start(self, specs: Sequence[ChildSpec]) -> None:
        """Start children side by side; wait until all are ready. Raises :class:`StartFailed`."""
        children = [_Child(spec, self._console, self._lifeline) for spec in specs]
        self._phases.append(children)
        try:
            async with asyncio.TaskGroup() as group:
                for child in children:
                    group.create_task(child.start())
        except* StartFailed as failures:
            raise failures.exceptions[0] from None
        self._keepers += (asyncio.create_task(child.keep()) for child in children)

    async def failed(self) -> None:
        """Wait for a keeper to raise (a bug of ours), and raise its error; never return."""
        await asyncio.gather(*self._keepers)

    async def stop(self) -> None:
        """End all children, the last started first."""
        await tasks.end(*self._keepers)
        for children in reversed(self._phases):
            await asyncio.gather(*(child.end() for child in children))


class _Child:
    """A child through all its restarts."""

    def __init__(self, spec: ChildSpec, console: Console, lifeline: Lifeline) -> None:
        self._spec = spec
        self._say = partial(console.child, spec.name)
        self._lifeline = lifeline
        self._process: Process | None = None

    async def start(self) -> None:
        """Start the child; wait until it is ready. Raises :class:`StartFailed`."""
        spec = self._spec
        self._say("starting", f"{spec.what}; log: {shown(spec.log_file)}")
        if reason := await self._run():
            head = f"{spec.name} did not start: {reason}. The end of its log, "
            end = [f"    {line}" for line in tail(spec.log_file)]
            raise StartFailed("\n".join([f"{head}{shown(spec.log_file)}:", *end]))

    async def keep(self) -> None:
        """Restart the child whenever it dies, forever."""
        delay = FIRST_DELAY_SECONDS
        while True:
            since = time.monotonic()
            reason = await self._death()
            if time.monotonic() - since >= STEADY_SECONDS:
                delay = FIRST_DELAY_SECONDS
            while reason:
                if self._process is not None:  # the rest of its group may still hold the port
                    await guarded_process.kill(self._process)
                log = shown(self._spec.log_file)
                self._say("died", f"{reason}; restarting in {delay:.0f} s; log: {log}")
                await asyncio.sleep(delay)
                delay = min(2 * delay, LONGEST_DELAY_SECONDS)
                reason = await self._run("again, ")

    async def end(self) -> None:
        """End the child, and all processes that it has started."""
        if self._process is not None:
            await guarded_process.end(self._process, self._spec.end_grace)

    async def _run(self, prefix: str = "") -> str:
        """Run the program and wait until it is ready; return why it isn't, or ""."""
        spec, begun = self._spec, time.monotonic()
        try:
            self._process = await guarded_process.start(
                spec.command, spec.environment, spec.directory, spec.log_file, self._lifeline
            )
        except OSError as error:
            return f"it can't be run: {error}"
        ready = asyncio.ensure_future(spec.probe.ready())
        ended = asyncio.ensure_future(self._process.wait())
        limit = begun + (spec.start_limit or math.inf)
        waiting, seconds = "", 0.0
        try:
            while not (ready.done() or ended.done()):
                if waiting and time.monotonic() >= limit:
                    return f"not ready after {spec.start_limit:.0f} s ({waiting})"
                if waiting:
                    self._say("waiting", f"{seconds:.0f} s, {waiting}")
                patience = min(PROGRESS_SECONDS, limit - time.monotonic())
                await asyncio.wait({ready, ended}, timeout=patience, return_when=FIRST_COMPLETED)
                seconds = time.monotonic() - begun
                waiting = f"for {spec.probe.waiting_for} ({spec.probe.last_answer})"
            # If the child has ended, another process gave the answer.
            reason = how_it_ended(ended.result()) if ended.done() else ready.result()
        finally:
            await tasks.end(ready, ended)
        if reason:
            return f"{reason}, after {seconds:.1f} s"
        self._say("ready", f"{prefix}after {seconds:.1f} s")
        return ""

    async def _death(self) -> str:
        """Wait until the child ends or must be restarted; say why."""
        assert self._process is not None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEALTH_SECONDS):
                    return how_it_ended(await self._process.wait())
            if illness := await self._spec.probe.illness():
                return illness


def how_it_ended(code: int) -> str:
    """Return an exit code (negative: a signal's number) in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a log file; none if it can't be read."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, lines)] or ["(empty)"]
    except OSError:
        return []
