"""The end of the process: what runs is finished, what comes is refused, and it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.server.asking import CHAT, body, checked_error, checked_error_body, payloads, text_of
from tests.support.proxy_process import GENEROUS, ProxyProcess
from tests.support.replies import DONE, data, text_chunks, text_stream
from tests.support.running_proxy import running_proxy
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer, Wait

ROLE, TEXT, END = (data(one) for one in text_chunks("Some words"))


def graced(folder: Path, upstream: ScriptedServer, seconds: float) -> ProxyProcess:
    """The real command, which has so long to finish what runs."""
    return ProxyProcess(folder, upstream.url, {"server.shutdown_grace_seconds": seconds})


async def ask(proxy: ProxyProcess, *, streamed: bool = False) -> httpx.Response:
    async with proxy.client() as client:
        return await client.post(CHAT, json=body(stream=streamed))


async def test_what_runs_is_finished_and_what_comes_is_refused(upstream: ScriptedServer) -> None:
    go_on = asyncio.Event()
    upstream.will(*[Reply.sse(ROLE, TEXT, Wait(go_on), END, DONE)] * 2)
    async with running_proxy(upstream.url, {"server.shutdown_grace_seconds": 600}) as proxy:
        asked = [body(stream=streamed) for streamed in (False, True)]
        running = [asyncio.create_task(proxy.client.post(CHAT, json=one)) for one in asked]
        for _ in running:
            await upstream.next_call()
        proxy.server.handle_exit(signal.SIGTERM, None)
        refused = await proxy.client.post(CHAT, json=body())
        assert refused.status_code == 503
        assert refused.json()["error"]["message"]
        assert refused.headers["x-should-retry"] == "true"
        assert not any(one.done() for one in running)
        go_on.set()
        whole, streamed = await asyncio.gather(*running)
        assert whole.json()["choices"][0]["message"]["content"] == "Some words"
        assert text_of(streamed.content) == "Some words"
        assert streamed.content.endswith(DONE)


async def test_idle_it_ends_at_once_also_with_open_connections(
    upstream: ScriptedServer,
) -> None:
    async with asyncio.timeout(GENEROUS):
        async with running_proxy(upstream.url, {"server.shutdown_grace_seconds": 600}) as proxy:
            reader, writer = await proxy.raw(b"")
            proxy.server.handle_exit(signal.SIGINT, None)
            assert await reader.read() == b""
            writer.close()


async def test_a_signal_within_a_log_line_ends_it_too(
    upstream: ScriptedServer, tmp_path: Path
) -> None:
    upstream.always(text_stream("x"))
    reading, writing = os.pipe()  # for its log: nobody reads it
    try:
        async with graced(tmp_path, upstream, 30) as proxy:
            await proxy.start(stderr=writing)
            os.close(writing)
            url = f"{proxy.url}{CHAT}"
            async with httpx.AsyncClient(trust_env=False, timeout=1) as client:
                with pytest.raises(httpx.ReadTimeout):  # the pipe is full: a line waits
                    while True:
                        await client.post(url, json=body())
            proxy.process.terminate()
            await asyncio.sleep(0.1)
            drained = asyncio.to_thread(
                lambda: [None for _ in iter(lambda: os.read(reading, 65536), b"")]
            )
            _, code = await asyncio.gather(drained, proxy.ended())
            assert code == 0
    finally:
        os.close(reading)


async def test_who_is_cut_off_by_the_end_is_told(upstream: ScriptedServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with graced(tmp_path, upstream, 0.5) as proxy, proxy.client() as client:
        with log.open("wb") as written:
            await proxy.start(written.fileno())
        asking = []
        for pieces in ((), (ROLE, TEXT)):
            for streamed in (False, True):
                upstream.will(Reply.sse(*pieces, SILENCE))
                asking.append(asyncio.create_task(ask(proxy, streamed=streamed)))
                await upstream.next_call()
        upstream.will(Reply.raw(SILENCE))
        through = asyncio.create_task(client.post("/v1/completions", json={"model": "fast"}))
        await (await upstream.next_call()).whole.wait()
        upstream.will(Reply.sse(ROLE, SILENCE))
        begun = client.stream("POST", "/v1/completions", json={"model": "fast"})
        async with begun as response:
            parts = response.aiter_bytes()
            assert await anext(parts) == ROLE
            proxy.process.terminate()
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(parts)
        *refused, with_text = await asyncio.gather(*asking)
        for one in (*refused, await through):
            checked_error(one, 503, "upstream_unavailable")
        *_, error, done = payloads(with_text.content)
        assert done == "[DONE]"
        checked_error_body(error, "upstream_unavailable")
        assert all([await call.left_within(1) for call in upstream.calls])
        assert await proxy.ended() == 0
    said = log.read_text("utf-8")
    assert "broken_off" in said and "Traceback" not in said and "ASGI" not in said
