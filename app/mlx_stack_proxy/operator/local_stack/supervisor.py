"""Starts children, waits until they are healthy, and restarts those that die."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from ... import tasks
from . import guarded_process
from .children import ChildSpec
from .console import Console, shown
from .guarded_process import GuardedProcess, Lifeline
from .probes import Hopeless

PROGRESS_SECONDS = 10.0
HEALTH_SECONDS = 10.0
FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 30.0
# A child that has run this long begins again with the first delay.
STEADY_SECONDS = 60.0
TAIL_LINES = 15


class StartFailed(Exception):
    """A child did not get healthy; ``lines`` say which, why, and how its log ends."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        super().__init__(lines[0])


class Supervisor:
    """The children of one stack, in the order in which they were started."""

    def __init__(self, console: Console, lifeline: Lifeline) -> None:
        self._console = console
        self._lifeline = lifeline
        self._phases: list[list[_Child]] = []
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self, specs: Sequence[ChildSpec]) -> None:
        """Start children side by side; return when all are healthy. Raises :class:`StartFailed`."""
        children = [_Child(spec, self._console, self._lifeline) for spec in specs]
        self._phases.append(children)
        try:
            async with asyncio.TaskGroup() as group:
                for child in children:
                    group.create_task(self._start_and_keep(child))
        except* StartFailed as failures:
            raise failures.exceptions[0] from None

    async def failed(self) -> None:
        """Never return; raise what a keeper raises, which is a fault of ours."""
        while True:
            done, _ = await asyncio.wait(self._keepers, return_when=asyncio.FIRST_EXCEPTION)
            for keeper in done:
                keeper.result()

    async def stop(self) -> None:
        """End all children, the last started first."""
        await tasks.end(*self._keepers)
        for children in reversed(self._phases):
            await asyncio.gather(*(child.end() for child in children))

    async def _start_and_keep(self, child: _Child) -> None:
        await child.start()
        self._keepers.append(asyncio.create_task(child.keep()))


class _Child:
    """One child over all its restarts."""

    def __init__(self, spec: ChildSpec, console: Console, lifeline: Lifeline) -> None:
        self._spec = spec
        self._console = console
        self._lifeline = lifeline
        self._process: GuardedProcess | None = None

    async def start(self) -> None:
        """Start it and return when it is healthy. Raises :class:`StartFailed`."""
        spec = self._spec
        self._console.child(spec.name, "starting", f"{spec.what}; log: {shown(spec.log_file)}")
        if reason := await self._try():
            head = f"{spec.name} did not start: {reason}. The end of its log, "
            end = [f"    {line}" for line in tail(spec.log_file)]
            raise StartFailed([f"{head}{shown(spec.log_file)}:", *end])

    async def keep(self) -> None:
        """Restart it whenever it dies, for ever."""
        delay = FIRST_DELAY_SECONDS
        while True:
            healthy_since = time.monotonic()
            reason: str | None = await self._death()
            if time.monotonic() - healthy_since >= STEADY_SECONDS:
                delay = FIRST_DELAY_SECONDS
            while reason is not None:
                if self._process is not None:  # what it has left, so that its port is free again
                    await self._process.kill()
                self._console.child(
                    self._spec.name,
                    "died",
                    f"{reason}; restarting in {delay:.0f} s; log: {shown(self._spec.log_file)}",
                )
                await asyncio.sleep(delay)
                delay = min(2 * delay, LONGEST_DELAY_SECONDS)
                reason = await self._try("again, ")

    async def end(self) -> None:
        """End it, and whatever it has started."""
        if self._process is not None:
            await self._process.end(self._spec.end_grace)

    async def _try(self, again: str = "") -> str | None:
        """Start it and wait until it is healthy; why it is not, if it isn't."""
        spec, begun = self._spec, time.monotonic()
        try:
            async with asyncio.timeout(spec.start_limit):
                self._process = await guarded_process.start(
                    spec.command, spec.environment, spec.directory, spec.log_file, self._lifeline
                )
                await self._healthy(self._process)
        except TimeoutError:
            return f"not ready after {spec.start_limit or 0:.0f} s ({self._waiting()})"
        except Hopeless as error:
            return f"{error}, after {time.monotonic() - begun:.1f} s"
        except OSError as error:
            return f"it can't be run: {error}"
        self._console.child(spec.name, "ready", f"{again}after {time.monotonic() - begun:.1f} s")
        return None

    async def _healthy(self, process: GuardedProcess) -> None:
        """Return when it is ready. Raises :class:`Hopeless`."""
        ready = asyncio.ensure_future(self._spec.probe.ready())
        ended = asyncio.ensure_future(process.wait())
        progress = asyncio.ensure_future(self._progress())
        try:
            await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():  # whoever answers now, it isn't this child
                raise Hopeless(how_it_ended(ended.result()))
            ready.result()
        finally:
            await tasks.end(ready, ended, progress)

    async def _progress(self) -> None:
        begun = time.monotonic()
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            seconds = time.monotonic() - begun
            self._console.child(self._spec.name, "waiting", f"{seconds:.0f} s, {self._waiting()}")

    def _waiting(self) -> str:
        probe = self._spec.probe
        return f"for {probe.waiting_for} ({probe.last_answer})"

    async def _death(self) -> str:
        """Wait until it ends or must be ended; say how."""
        assert self._process is not None
        ended = asyncio.ensure_future(self._process.wait())
        try:
            while not (await asyncio.wait({ended}, timeout=HEALTH_SECONDS))[0]:
                if illness := await self._spec.probe.illness():
                    return illness
            return how_it_ended(ended.result())
        finally:
            ended.cancel()


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a log file."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 16_384))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-lines:] or ["(empty)"]
