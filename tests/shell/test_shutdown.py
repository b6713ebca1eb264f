"""SIGTERM to the real command: what runs is finished, what comes is refused, and it ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.shell.asking import CHAT, body, text_of
from tests.support.ports import free_port
from tests.support.replies import DONE, data, text_chunks, text_stream
from tests.support.running_proxy import proxy_config
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer, Wait

ROLE, TEXT, END = (data(one) for one in text_chunks("Some words"))
GENEROUS = 20  # seconds; a hang is what would fail here


class Served:
    def __init__(self, process: asyncio.subprocess.Process, client: httpx.AsyncClient) -> None:
        self.process = process
        self.client = client

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        async with asyncio.timeout(GENEROUS):
            return await self.process.wait()

    async def until_refusing(self) -> httpx.Response:
        """Ask, over connections of our own, until it is seen to be going down."""
        async with asyncio.timeout(GENEROUS):
            while True:
                async with httpx.AsyncClient(base_url=self.client.base_url) as client:
                    response = await client.post(CHAT, json=body())
                if response.status_code != 200:
                    return response


@contextlib.asynccontextmanager
async def serve(upstream: ScriptedServer, folder: Path, grace: float) -> AsyncIterator[Served]:
    port = free_port()
    changes = {"server.port": port, "server.shutdown_grace_seconds": grace}
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(proxy_config(upstream.url, changes)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", "serve", "--config", str(file)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        base = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=GENEROUS) as client:
            async with asyncio.timeout(GENEROUS):
                while True:
                    with contextlib.suppress(httpx.TransportError):
                        await client.get("/health")
                        break
                    await asyncio.sleep(0.05)
            yield Served(process, client)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_what_runs_is_finished_and_what_comes_is_refused(
    streamed: bool, upstream: ScriptedServer, tmp_path: Path
) -> None:
    go_on = asyncio.Event()
    upstream.will(Reply.sse(ROLE, TEXT, Wait(go_on), END, DONE))
    upstream.always(text_stream())
    async with serve(upstream, tmp_path, grace=30) as served:
        running = asyncio.create_task(served.client.post(CHAT, json=body(stream=streamed)))
        await upstream.next_call()
        served.terminate()
        refused = await served.until_refusing()
        assert refused.status_code == 503
        assert refused.json()["error"]["message"]
        assert refused.headers["x-should-retry"] == "true"
        assert not running.done()
        go_on.set()
        response = await running
        if streamed:
            assert text_of(response.content) == "Some words"
            assert response.content.endswith(DONE)
        else:
            assert response.json()["choices"][0]["message"]["content"] == "Some words"
        assert await served.ended() == 0


async def test_what_does_not_finish_in_time_is_cut_off(
    upstream: ScriptedServer, tmp_path: Path
) -> None:
    upstream.will(Reply.sse(ROLE, TEXT, SILENCE))
    async with serve(upstream, tmp_path, grace=0.5) as served:
        running = asyncio.create_task(served.client.post(CHAT, json=body(stream=True)))
        call = await upstream.next_call()
        served.terminate()
        await served.ended()
        assert await call.left_within(1)
        with contextlib.suppress(httpx.TransportError):
            response = await running
            assert b'"error"' in response.content, "a cut must not look like success"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
async def test_idle_it_ends_at_once(
    number: signal.Signals, upstream: ScriptedServer, tmp_path: Path
) -> None:
    async with serve(upstream, tmp_path, grace=30) as served:
        served.process.send_signal(number)
        assert await served.ended() == 0


async def test_open_idle_connections_do_not_hold_it_up(
    upstream: ScriptedServer, tmp_path: Path
) -> None:
    async with serve(upstream, tmp_path, grace=30) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.client.base_url.port)
        served.terminate()
        assert await served.ended() == 0
        assert await reader.read() == b""
        writer.close()
