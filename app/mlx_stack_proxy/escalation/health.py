"""Asking a silent tier whether it is alive: its server's ``health_url``, and LiteLLM before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..engine.deadlines import Deadlines
from ..engine.upstream import Upstream

SECONDS = 3.0  # for an answer


class Questions:
    """One exchange's. ``clock``: that of its deadlines."""

    def __init__(self, upstream: Upstream, clock: Callable[[], float]) -> None:
        self._upstream = upstream
        self._clock = clock
        self._running: list[asyncio.Task[None]] = []

    def ask(
        self, deadlines: Deadlines, url: str, *, direct: bool, then: Callable[[], None]
    ) -> None:
        """Ask; the deadlines are told what comes of it, ``then`` is called.

        ``direct``: LiteLLM has no part in the call.
        """
        question = asyncio.ensure_future(self._ask(deadlines, url, direct, then))
        self._running.append(question)
        question.add_done_callback(self._running.remove)

    def close(self) -> None:
        for question in self._running:
            question.cancel()

    async def _ask(
        self, deadlines: Deadlines, url: str, direct: bool, then: Callable[[], None]
    ) -> None:
        server = await self._upstream.answers(url, SECONDS)
        # LiteLLM may hang before a server that is well.
        litellm = direct or not server or await self._upstream.is_alive(SECONDS)
        deadlines.answered(self._clock(), server=server, litellm=litellm)
        then()
