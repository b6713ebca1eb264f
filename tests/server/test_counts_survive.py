"""Counts that outlive the process: killed, and stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx

from tests.server.asking import CHAT, body
from tests.server.counting import USED, session_of
from tests.support.proxy_process import ProxyProcess
from tests.support.replies import text_stream
from tests.support.running_proxy import running_proxy
from tests.support.scripted_server import ScriptedServer

ROUNDS = int(os.environ.get("KILL_ROUNDS", "1"))
CLIENTS = 8


async def counted_for(proxy: ProxyProcess, name: str) -> dict[str, Any]:
    """What it has counted for a session; nothing, where it knows none."""
    async with proxy.client() as client:
        response = await client.get(f"/mlx-stack/sessions/{name}")
    found: dict[str, Any] = response.json()
    return found if response.status_code == 200 else {"used": 0, "turns": 0}


class Agents:
    """Clients that ask for streams, one after the other, and count those that they saw end."""

    def __init__(self, url: str, session: str) -> None:
        self._url = url
        self._session = session
        self.finished = self.asked = 0
        self.enough = asyncio.Event()

    async def run(self) -> None:
        await asyncio.gather(*(self._one(number) for number in range(CLIENTS)))

    async def _one(self, number: int) -> None:
        headers = {"X-MLX-Stack-Session": self._session}
        async with httpx.AsyncClient(base_url=self._url, headers=headers) as client:
            for turn in range(1_000_000):
                question = [{"role": "user", "content": f"{number} asks {turn}, {self.asked}"}]
                self.asked += 1
                try:
                    asked = body(messages=question, stream=True)
                    response = await client.post(CHAT, json=asked)
                except httpx.TransportError:
                    return  # the proxy has gone
                if response.status_code != 200:
                    self.asked -= 1  # refused at the end: nothing went upstream
                    return
                self.finished += b"[DONE]" in response.content
                if self.finished >= 40:
                    self.enough.set()


async def test_what_a_client_saw_finished_is_counted_and_nothing_twice(
    tmp_path: Path, upstream: ScriptedServer
) -> None:
    upstream.always(lambda _: text_stream("Hello"))
    store = {"state.backend": "sqlite", "state.path": str(tmp_path / "state.db")}
    finished = asked = 0
    async with ProxyProcess(tmp_path, upstream.url, store) as proxy:
        for how in [signal.SIGKILL] * ROUNDS + [signal.SIGTERM]:
            await proxy.start()
            counted = (await counted_for(proxy, "killed-agent"))["used"]
            assert finished * USED <= counted <= asked * USED
            agents = Agents(proxy.url, "killed-agent")
            running = asyncio.create_task(agents.run())
            async with asyncio.timeout(60):
                await agents.enough.wait()
            await proxy.end(how)
            await running
            finished += agents.finished
            asked += agents.asked
    async with running_proxy(upstream.url, store) as after:
        found = await session_of(after, "killed-agent")
    assert finished * USED <= found["used"] <= asked * USED
    assert found["used"] % USED == 0
