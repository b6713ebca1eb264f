"""Kills the weak model's server while a task runs; one that isn't ours plays dead."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from .relay import Relay

DOWN_SECONDS: Final = 10.0  # how long a server that isn't ours plays dead
EVERY, AT = 25, 12  # in one task of so many,
CALL: Final = 2  # while its second call runs; a task with fewer has none
_LOOK_SECONDS: Final = 0.01


class Kills:
    """``kill``: kills a model's server, and says whether it could.

    ``happened``: whether the server was killed in the task that ran last.
    """

    def __init__(
        self, relay: Relay, model: str, kill: Callable[[str], bool], down: float = DOWN_SECONDS
    ) -> None:
        self._relay = relay
        self._model = model
        self._kill = kill
        self._down = down
        self._playing_dead: asyncio.Task[None] | None = None
        self.happened = False

    @contextlib.asynccontextmanager
    async def during(self, task: int) -> AsyncIterator[None]:
        """Around a task."""
        self.happened = False
        waiting = asyncio.create_task(self._at_its_call()) if task % EVERY == AT else None
        try:
            yield
        finally:
            if waiting is not None:
                waiting.cancel()  # it has done what it had to, or the task had too few calls
                await asyncio.wait([waiting])

    async def _at_its_call(self) -> None:
        while len(self._relay.attempts) < CALL:  # noqa: ASYNC110  # all there is to be looked at
            await asyncio.sleep(_LOOK_SECONDS)
        self.happened = True
        if not self._kill(self._model):
            # Beyond the task, mostly: the tasks that follow meet it, too.
            self._playing_dead = asyncio.create_task(self._play_dead())

    async def _play_dead(self) -> None:
        self._relay.down.add(self._model)
        try:
            await asyncio.sleep(self._down)
        finally:
            self._relay.down.discard(self._model)

    async def close(self) -> None:
        """The server that plays dead is up again."""
        if self._playing_dead is not None:
            self._playing_dead.cancel()
            await asyncio.wait([self._playing_dead])
