"""Counts that outlive the process: killed, stopped, with fifty clients at once."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai

from tests.server.asking import CHAT, body
from tests.server.counting import USED
from tests.support.proxy_process import ProxyProcess
from tests.support.replies import text_stream
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
        await proxy.start()
        found = await counted_for(proxy, "killed-agent")
        assert finished * USED <= found["used"] <= asked * USED
        assert found["used"] % USED == 0


async def test_fifty_threads_of_the_sdk_do_not_overshoot_a_hard_stop(
    tmp_path: Path, upstream: ScriptedServer
) -> None:
    reply = " ".join(f"word{n}" for n in range(300))
    upstream.always(lambda _: text_stream(reply, usage=False))
    limit = 100_000
    changes = {
        "state.backend": "sqlite",
        "state.path": str(tmp_path / "state.db"),
        "reliability.token_budget.per_hour": limit,
        "reliability.token_budget.policy": "hard_stop",
        "tiers.fast.queue_timeout": 30,
        "tiers.fast.max_concurrency": 50,
    }
    proxy = ProxyProcess(tmp_path, upstream.url, changes)

    def ask_until_refused(number: int) -> int:
        """How many replies one thread got."""
        name = {"X-MLX-Stack-Session": f"thread-{number:04d}"}
        client = openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="k", default_headers=name)
        got = 0
        with client:
            while True:
                question = f"Question {got} of {number}"
                try:
                    client.chat.completions.create(
                        model="fast",
                        max_tokens=1000,
                        messages=[{"role": "user", "content": question}],
                    )
                except openai.RateLimitError as error:
                    assert error.type == "budget_exceeded"
                    return got
                got += 1

    async with proxy:
        await proxy.start()
        with ThreadPoolExecutor(50) as pool:
            loop = asyncio.get_running_loop()
            got = await asyncio.gather(
                *(loop.run_in_executor(pool, ask_until_refused, n) for n in range(50))
            )
        async with proxy.client() as client:
            found = (await client.get("/mlx-stack/sessions?limit=100")).json()["sessions"]
            used = sum(session["used"] for session in found)
    each = used / sum(got)
    assert limit - 2 * 1000 < used < limit + each
