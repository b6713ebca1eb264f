"""What the tests of memory pressure share: tiers, and calls that wait until they are let go."""

from __future__ import annotations

import asyncio
from typing import Any

from mlx_stack_proxy.memory_pressure.pressure import Level
from tests.server.calling import TOOLS
from tests.server.climbing import by_model
from tests.server.conftest import StartProxy
from tests.server.polling import metric_value
from tests.support.forced_memory import ForcedMemory
from tests.support.replies import data, text_chunks
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Call, Reply, ScriptedServer, Wait, WhenWhole

HEADER = "x-mlx-stack-memory-pressure"
NORMAL, WARNING, CRITICAL = Level.NORMAL, Level.WARNING, Level.CRITICAL
COMPLEX = {
    "messages": [{"role": "user", "content": "What did the quokka see? " * 1000}],
    "tools": TOOLS,
}
CONSENT = {"model": "cloud/large"}


def changes(escalation: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Two local tiers and a cloud tier with consent; a queue that nobody gives up."""
    local = {"max_concurrency": 2, "queue_timeout": 60}
    return {
        "tiers": {
            "fast": {"model": "fast", **local},
            "standard": {"model": "standard", **local},
            "premium": {"model": "premium", "local": False},
        },
        "reliability.escalation": {
            "chain": ["fast", "standard", "premium"],
            "cloud_fallback": CONSENT,
            "max_retries_before_escalate": 0,
            **(escalation or {}),
        },
        **more,
    }


async def start(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    memory: ForcedMemory,
    escalation: dict[str, Any] | None = None,
    **more: Any,
) -> RunningProxy:
    upstream.models = ("fast", "standard", "premium")
    upstream.always(by_model())
    return await start_proxy(changes(escalation, **more), memory=memory)


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


async def gauge(proxy: RunningProxy) -> float | None:
    return metric_value((await proxy.client.get("/metrics")).text, "mlx_stack_memory_pressure")
