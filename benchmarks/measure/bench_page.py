"""What an open page costs the proxy: `python -m benchmarks.measure.bench_page`.

A proxy with SQLite serves 1,000 exchanges a minute, each of which keeps an event; first nobody
looks, then a browser has the overview open, then the list of what happened. Counted is the
proxy's own processor time, so that what else the machine does matters little.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import httpx
import psutil

from tests.server.calling import TOOLS, calling
from tests.support.browser import Browser
from tests.support.proxy_process import ProxyProcess
from tests.support.scripted_server import ScriptedServer

SECONDS = 30.0
A_SECOND = 1000 / 60
ASKED = "return performance.getEntriesByType('resource').length"


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        changes = {
            "state": {"backend": "sqlite", "path": str(folder / "state.db")},
            "observability": {"log_format": "json", "log_level": "error"},
        }
        async with ScriptedServer() as upstream, ProxyProcess(folder, upstream.url, changes) as one:
            upstream.always(calling('{"query": "q",}'))
            await one.start()
            process = psutil.Process(one.process.pid)
            async with one.client() as client, Browser(folder) as browser:
                for what in (None, "", "exchanges", None):
                    await browser.open("about:blank")
                    if what is not None:
                        await browser.open(f"{one.url}/mlx-stack/#/{what}")
                    share = await _share(process, client)
                    said = "nobody looks" if what is None else f"#/{what} is open"
                    print(f"{said}: {share:.2%} of a core, {await browser.run(ASKED)} answers")


async def _share(process: psutil.Process, client: httpx.AsyncClient) -> float:
    """Of a core, while the exchanges go on."""
    body = {"model": "fast", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}
    before, begun, made = sum(process.cpu_times()[:2]), time.monotonic(), 0
    while (passed := time.monotonic() - begun) < SECONDS:
        await client.post("/v1/chat/completions", json=body)
        made += 1
        await asyncio.sleep(max(0.0, made / A_SECOND - passed))
    return float(sum(process.cpu_times()[:2]) - before) / (time.monotonic() - begun)


if __name__ == "__main__":
    asyncio.run(main())
