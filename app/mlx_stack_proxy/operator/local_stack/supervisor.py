"""Start children, wait until they are ready, and restart those that die or hang.

Each child has one task, which lives as long as the stack: it starts the child, waits until it is
ready, then for its end, and starts it again. When the task is cancelled it ends the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TextIO

from ... import tasks
from ...engine.upstream import UpstreamError
from ...printable import printable
from .. import CommandError, discard_output
from ..prober import brief, fetch, one_token
from . import guarded_process
from .children import START_SECONDS, ChildSpec
from .run_directory import shown

ASK_SECONDS = 0.2  # between questions to a child that starts: they are cheap
ANSWER_SECONDS = 5.0
PROGRESS_SECONDS = 10.0  # between two lines about a child that isn't ready yet
HEALTH_SECONDS = 10.0  # between questions to a child that runs
# Unanswered questions in a row after which a child hangs: some 90 s. A busy one answers in between.
MOST_UNANSWERED = 6
FIRST_DELAY_SECONDS = 1.0  # before a restart; doubled each time, so that loading again costs little
LONGEST_DELAY_SECONDS = 30.0
STEADY_SECONDS = 60.0  # a child that was ready for so long gets the first delay again
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
        try:
            print(text, file=self._out, flush=True)
        except OSError:
            if self._out is None:
                discard_output()
        except ValueError:
            pass  # a closed file, or a character that its encoding lacks

    def child(self, name: str, state: str, detail: str) -> None:
        """Write a line about one child, in columns."""
        self.say(printable(f"  {name:<{self._name_width}}  {state:<10} {detail}".rstrip()))


class Supervisor:
    """Starts and keeps the children of one stack, and ends them when its context ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lifeline = guarded_process.Lifeline()
        self._phases: list[list[asyncio.Task[None]]] = []  # a task for each child

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with self._lifeline:
            await self.stop()

    async def start(self, specs: Sequence[ChildSpec]) -> None:
        """Start children side by side; wait until all are ready. Raises :class:`StartFailed`."""
        ready = [asyncio.Event() for _ in specs]
        keepers = [asyncio.create_task(self._keep(*one)) for one in zip(specs, ready, strict=True)]
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
        log, again, delay = shown(spec.log_file), "", FIRST_DELAY_SECONDS
        self._console.child(spec.name, "starting", f"{spec.what}; log: {log}")
        while True:
            begun, process = time.monotonic(), None
            try:
                process = await guarded_process.start(
                    spec.command, spec.environment, spec.directory, spec.log_file, self._lifeline
                )
                reason = await _first(
                    _ended(process), self._until_ready(spec, loaded=ready.is_set())
                )
                after = f"after {time.monotonic() - begun:.1f} s"
                if reason:
                    reason += f", {after}"
                else:
                    self._console.child(spec.name, "ready", again + after)
                    ready.set()
                    ready_at = time.monotonic()
                    reason = await _first(_ended(process), _illness(spec))
                    if time.monotonic() - ready_at >= STEADY_SECONDS:
                        delay = FIRST_DELAY_SECONDS
            except OSError as error:
                reason = f"it can't be run: {error}"
            finally:
                if process is not None:  # the rest of its group may still hold the port
                    await guarded_process.end(process, spec.end_grace)
            if not ready.is_set():
                head = f"{spec.name} did not start: {reason}. The end of its log, {log}:"
                raise StartFailed("\n    ".join([head, *tail(spec.log_file)]))
            text = f"{reason}; restarting in {delay:.0f} s; log: {log}"
            self._console.child(spec.name, "died", text)
            await asyncio.sleep(delay)
            delay, again = min(2 * delay, LONGEST_DELAY_SECONDS), "again, "

    async def _until_ready(self, spec: ChildSpec, *, loaded: bool = False) -> str:
        """Wait until a child is ready, with a line now and then; return "", or why it isn't.

        ``loaded``: it was ready before, so that its model needs no download any more.

        A model server is asked for a token, which waits until the model is loaded and takes the
        extra time of the first reply: it answers its path while it loads. Another answer than 200
        means that its model can't be used.
        """
        begun, answer = time.monotonic(), "no answer yet"
        limit = spec.start_limit or (START_SECONDS if loaded else None)
        waiting_for = "its model's first token" if spec.model else f"GET {spec.url}"
        asking: asyncio.Task[tuple[int, str]] | None = None
        shown_at = begun + PROGRESS_SECONDS
        try:
            while True:
                asking = asking or asyncio.create_task(_asked(spec, spec.model))
                await asyncio.wait([asking], timeout=ASK_SECONDS)
                seconds = time.monotonic() - begun
                if asking.done():
                    (status, answer), asking = asking.result(), None
                    if status == 200:
                        return ""
                    if spec.model and status:
                        return f"its first request got {answer}"
                    await asyncio.sleep(ASK_SECONDS)
                if limit is not None and seconds >= limit:
                    return f"not ready after {limit:.0f} s, waiting for {waiting_for} ({answer})"
                if begun + seconds >= shown_at:
                    text = f"{seconds:.0f} s, for {waiting_for} ({answer})"
                    self._console.child(spec.name, "waiting", text)
                    shown_at += PROGRESS_SECONDS
        finally:
            await tasks.end(asking)


async def _first(*ways: Any) -> str:
    """Return what the first of these coroutines returns, in their order; cancel the others."""
    running = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        result: str = next(task for task in running if task.done()).result()
        return result
    finally:
        await tasks.end(*running)


async def _ended(process: Process) -> str:
    return how_it_ended(await process.wait())


async def _illness(spec: ChildSpec) -> str:
    """Wait until a running child must be restarted; say why."""
    unanswered = 0
    while unanswered < MOST_UNANSWERED:
        await asyncio.sleep(HEALTH_SECONDS)
        status, _ = await _asked(spec)
        if spec.model and status == 503:
            return "its model thread has died"
        unanswered = 0 if status else unanswered + 1
    return f"it hangs: {unanswered} consecutive requests got no answer"


async def _asked(spec: ChildSpec, model: str = "") -> tuple[int, str]:
    """Ask for the child's path, or a token of ``model``; return the status (0: none), and words."""
    try:
        if model:
            status, body = await one_token(spec.url, model)
        else:
            status, body = await fetch(spec.url, seconds=ANSWER_SECONDS)
    except (UpstreamError, TimeoutError) as error:
        return 0, str(error) or "no answer in time"
    return status, brief(status, body)


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
