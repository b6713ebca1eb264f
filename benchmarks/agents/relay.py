"""Stands before LiteLLM, changes nothing, and writes down what each model call generated.

All columns go through one, so it costs all the same. It can also throw faults in, where LiteLLM
and the models would: the same ones for the same task and call.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from random import Random

from aiohttp import web

from benchmarks.came import read
from benchmarks.passing import Passing

from . import broken

LONGEST_STALL = 300.0
# Of kills: in one task of so many, while its second call runs; a task with fewer has none.
EVERY, AT, CALL = 25, 12, 2
LOST = "litellm.InternalServerError: InternalServerError: OpenAIException - Connection error."


@dataclass
class Attempt:
    """One model call. ``loop``: how it went round, as `broken.loops` says. ``cut``: left early.

    ``tokens``: as the usage says; of a reply that was left, the pieces that had come.
    """

    model: str
    status: int
    tokens: int = 0
    loop: str = ""
    cut: bool = False
    fault: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Faults:
    """``errors``, ``stalls``: shares of calls. ``seed``: decides which."""

    errors: float = 0.05
    stalls: float = 0.005
    seed: int = 1

    def of(self, task: int, call: int) -> str:
        """`error`, `stall`, or nothing, for the n-th call of a task."""
        drawn = Random(f"{self.seed}:{task}:{call}").random()
        if drawn < self.errors:
            return "error"
        return "stall" if drawn < self.errors + self.stalls else ""


class Relay(Passing):
    def __init__(self, upstream: str, faults: Faults | None = None) -> None:
        super().__init__(upstream)
        self.attempts: list[Attempt] = []
        self._faults = faults
        self._task = 0
        self._calls = 0
        self._open = 0
        self._idle = asyncio.Event()

    def begin(self, task: int) -> None:
        """The calls from now on belong to this task."""
        self._task, self._calls, self.attempts = task, 0, []

    async def settled(self) -> None:
        """Return when no model call is running: a reply may be delivered before its usage comes."""
        while self._open:
            self._idle.clear()
            await self._idle.wait()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if not request.path.endswith("/chat/completions"):
            return await self.pass_on(request, body, bytearray())
        asked = json.loads(body)
        attempt = Attempt(str(asked.get("model")), 0)
        attempts, begun, came = self.attempts, time.monotonic(), bytearray()
        attempts.append(attempt)
        self._open += 1
        try:
            self._calls += 1
            attempt.fault = self._faults.of(self._task, self._calls) if self._faults else ""
            if attempt.fault:
                if attempt.fault == "stall":
                    await asyncio.sleep(LONGEST_STALL)
                attempt.status = 500
                error = {"message": LOST, "type": None, "param": None, "code": "500"}
                return web.json_response({"error": error}, status=500)
            response = await self.pass_on(request, body, came)
            attempt.status = response.status
            return response
        except (asyncio.CancelledError, OSError):
            attempt.cut = True
            raise
        finally:
            self._open -= 1
            self._idle.set()
            attempt.seconds = round(time.monotonic() - begun, 3)
            if not attempt.fault:
                with contextlib.suppress(ValueError):
                    found = read(came.decode(errors="replace"))
                    attempt.tokens = found.usage.get("completion_tokens") or found.pieces
                    # In a chain of equal calls, all but the first were for nothing.
                    attempt.loop = broken.loops(found.message, 2, asked["messages"])


@contextlib.asynccontextmanager
async def killing(relay: Relay, task: int, kill: Callable[[], bool]) -> AsyncIterator[list[bool]]:
    """In one task of ``EVERY``, around it: kill a server during the task's second call.

    Yields a list that holds True once the server was killed. ``kill``: whether it could.
    """
    happened: list[bool] = []

    async def at_its_call() -> None:
        while len(relay.attempts) < CALL:  # noqa: ASYNC110  # all there is to be looked at
            await asyncio.sleep(0.01)
        happened.extend([True] if kill() else [])

    waiting = asyncio.create_task(at_its_call() if task % EVERY == AT else asyncio.sleep(0))
    try:
        yield happened
    finally:
        waiting.cancel()  # it has done what it had to, or the task had too few calls
        await asyncio.wait([waiting])
