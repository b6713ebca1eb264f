"""Start children, wait until they are ready, and restart those that die.

Each child has one task, which lives as long as the stack: it starts the child, waits until it is
ready, then for its death or illness, and starts it again. The delay before that doubles each time,
until the child has run for ``STEADY_SECONDS``. When the task is cancelled it ends the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import time
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TextIO

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
        self._phases: list[list[asyncio.Task[None]]] = []  # a task for each child

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with self._lifeline:
            await self.stop()

    async def start(self, specs: Sequence[ChildSpec]) -> None:
        """Start children side by side; wait until all are ready. Raises :class:`StartFailed`."""
        ready = [asyncio.Event() for _ in specs]
        pairs = zip(specs, ready, strict=True)
        keepers = [asyncio.create_task(self._keep(*pair)) for pair in pairs]
        self._phases.append(keepers)
        all_ready = asyncio.gather(*(event.wait() for event in ready))
        waited: list[asyncio.Future[Any]] = [all_ready, *keepers]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for keeper in keepers:
                if keeper.done():
                    keeper.result()  # raises
        finally:
            await tasks.end(all_ready)

    async def failed(self) -> None:
        """Wait for a child's task to raise (a bug of ours), and raise its error; never return."""
        await asyncio.gather(*(keeper for phase in self._phases for keeper in phase))

    async def stop(self) -> None:
        """End all children, the last started first."""
        for keepers in reversed(self._phases):
            await tasks.end(*keepers)

    async def _keep(self, spec: ChildSpec, ready: asyncio.Event) -> None:
        """Start a child again and again. Raises :class:`StartFailed` if it never was ready."""
        log, delay, again = shown(spec.log_file), FIRST_DELAY_SECONDS, ""
        self._say(spec, "starting", f"{spec.what}; log: {log}")
        while True:
            begun, process = time.monotonic(), None
            try:
                process = await guarded_process.start(
                    spec.command, spec.environment, spec.directory, spec.log_file, self._lifeline
                )
                reason = await self._until_ready(spec, process)
                seconds = time.monotonic() - begun
                if not reason:
                    self._say(spec, "ready", f"{again}after {seconds:.1f} s")
                    ready.set()
                    reason = await _until_ill(spec, process)
                    if time.monotonic() - begun - seconds >= STEADY_SECONDS:
                        delay = FIRST_DELAY_SECONDS
                else:
                    reason += f", after {seconds:.1f} s"
            except OSError as error:
                reason = f"it can't be run: {error}"
            finally:
                if process is not None:  # the rest of its group may still hold the port
                    await guarded_process.end(process, spec.end_grace)
            if not ready.is_set():
                head = f"{spec.name} did not start: {reason}. The end of its log, {log}:"
                raise StartFailed("\n    ".join([head, *tail(spec.log_file)]))
            self._say(spec, "died", f"{reason}; restarting in {delay:.0f} s; log: {log}")
            await asyncio.sleep(delay)
            delay, again = min(2 * delay, LONGEST_DELAY_SECONDS), "again, "

    async def _until_ready(self, spec: ChildSpec, process: Process) -> str:
        """Wait until a child is ready; return "", or why it isn't."""
        begun, limit = time.monotonic(), spec.start_limit or math.inf
        ready = asyncio.ensure_future(spec.probe.ready())
        ended = asyncio.ensure_future(process.wait())
        patience = min(PROGRESS_SECONDS, limit)
        try:
            while True:
                both = {ready, ended}
                await asyncio.wait(both, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():  # first: then another process gave the answer
                    return how_it_ended(ended.result())
                if ready.done():
                    return ready.result()
                waiting = f"for {spec.probe.waiting_for} ({spec.probe.last_answer})"
                seconds = time.monotonic() - begun
                if seconds >= limit:
                    return f"not ready after {limit:.0f} s ({waiting})"
                self._say(spec, "waiting", f"{seconds:.0f} s, {waiting}")
                patience = min(PROGRESS_SECONDS, limit - seconds)
        finally:
            await tasks.end(ready, ended)

    def _say(self, spec: ChildSpec, state: str, detail: str) -> None:
        self._console.child(spec.name, state, detail)


async def _until_ill(spec: ChildSpec, process: Process) -> str:
    """Wait until a child ends or must be restarted; say why."""
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEALTH_SECONDS):
                return how_it_ended(await process.wait())
        if illness := await spec.probe.illness():
            return illness


def how_it_ended(code: int) -> str:
    """Return an exit code (negative: a signal's number) in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a log file; none if it can't be read."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, lines)] or ["(empty)"]
    except OSError:
        return []
