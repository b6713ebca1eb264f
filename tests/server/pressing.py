"""Calls that wait until they are let go."""

from __future__ import annotations

import asyncio

from tests.support.replies import data, text_chunks
from tests.support.scripted_server import Call, Reply, ScriptedServer, Wait, WhenWhole


class Gate:
    """Every call from now on waits until it is let go."""

    def __init__(self, upstream: ScriptedServer) -> None:
        self.gates: list[asyncio.Event] = []
        self.running = 0
        self._arrived: asyncio.Queue[str] = asyncio.Queue()
        upstream.always(WhenWhole(self._reply))

    def _reply(self, call: Call) -> Reply:
        gate = asyncio.Event()
        self.gates.append(gate)
        self.running += 1
        self._arrived.put_nowait(call.json()["model"])

        async def done() -> None:
            self.running -= 1

        role, text, end = (data(one) for one in text_chunks("ok"))
        return Reply.sse(role, text, Wait(gate), done, end)

    async def next_call(self) -> str:
        """The model of the next call that has arrived."""
        async with asyncio.timeout(10):
            return await self._arrived.get()

    def open(self) -> None:
        for gate in self.gates:
            gate.set()
