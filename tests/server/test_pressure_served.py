"""`pressure --serve` over HTTP, and a proxy that reads it as its `source`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlx_stack_proxy.memory_pressure import readers
from mlx_stack_proxy.memory_pressure.pressure import Level
from mlx_stack_proxy.operator import pressure
from tests.server.asking import ask
from tests.server.conftest import StartProxy
from tests.server.polling import until_metric
from tests.support.forced_memory import ForcedMemory
from tests.support.ports import free_port
from tests.support.replies import text_stream
from tests.support.scripted_server import Reply, ScriptedServer
from tests.support.waiting import until


@contextlib.asynccontextmanager
async def serving(memory: ForcedMemory) -> AsyncIterator[httpx.AsyncClient]:
    """A client of what `--serve` runs."""
    app = pressure.build(memory.probe)
    transport = httpx.ASGITransport(app)
    client = httpx.AsyncClient(transport=transport, base_url="http://host")
    async with app.router.lifespan_context(app), client:
        yield client


async def test_the_raw_level_is_served_and_the_reader_of_it_damps() -> None:
    memory = ForcedMemory()
    async with serving(memory) as client:
        await memory.shows(Level.CRITICAL)
        assert (await client.get("/")).json() == {
            "level": "critical",
            "cause": "system",
            "source": "forced",
            "reading": {"level": "critical"},
        }
        await memory.shows(Level.NORMAL)
        assert (await client.get("/")).json()["level"] == "normal"
        assert memory.probe.pressure.level is Level.CRITICAL
        assert (await client.get("/else")).status_code == 404
        assert (await client.post("/")).status_code == 405
    assert memory.closed


async def test_what_can_t_be_read_is_no_level() -> None:
    memory = ForcedMemory()
    memory.error = OSError("it broke")
    async with serving(memory) as client:
        await memory.shows(Level.NORMAL)
        response = await client.get("/")
    assert response.status_code == 503
    assert response.json() == {"error": "OSError: it broke", "source": "forced"}


def reading_from(url: str) -> dict[str, Any]:
    return {"reliability.memory_pressure": {"source": url, "interval_seconds": 0.05}}


async def test_a_proxy_reads_it(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    upstream.always(text_stream())
    upstream.routes["GET", "/memory"] = Reply.json({"level": "critical", "cause": "swap"})
    proxy = await start_proxy(reading_from(f"{upstream.url}/memory"))
    await until_metric(proxy, "mlx_stack_memory_pressure", 2)
    assert (await ask(proxy)).headers["x-mlx-stack-memory-pressure"] == "critical"
    assert (await proxy.client.get("/ready")).json()["memory_pressure"]["source"] == "host"


async def test_a_proxy_whose_source_is_not_there_serves_on(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(reading_from(f"http://127.0.0.1:{free_port()}/"))
    proxy.upstream.always(text_stream())

    async def trouble() -> Any:
        found = (await proxy.client.get("/ready")).json()["memory_pressure"]
        assert found["level"] == "normal"
        return found["trouble"]

    assert "refused" in await until(trouble)
    assert "mlx_stack_memory_pressure" not in (await proxy.client.get("/metrics")).text
    response = await ask(proxy)
    assert response.status_code == 200
    assert "x-mlx-stack-memory-pressure" not in response.headers


async def test_as_a_process_of_its_own(tmp_path: Path) -> None:
    if readers.this_machine() is None:
        pytest.skip("this machine reports no memory pressure")
    url = f"http://127.0.0.1:{(port := free_port())}/"
    command = ["-m", "mlx_stack_proxy", "pressure", "--serve", "--port", str(port)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=tmp_path)
    try:
        async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as client:
            while (response := await answered(client, url)) is None:
                assert process.returncode is None
                await asyncio.sleep(0.05)
        assert response.json()["level"] in ("normal", "warning", "critical")
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def answered(client: httpx.AsyncClient, url: str) -> httpx.Response | None:
    try:
        response = await client.get(url)
    except httpx.TransportError:
        return None
    return response if response.status_code == 200 else None
