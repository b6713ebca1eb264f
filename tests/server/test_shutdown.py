"""SIGTERM to the real command: what runs is finished, what comes is refused, and it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.server.asking import CHAT, body, checked_error, checked_error_body, payloads, text_of
from tests.support.proxy_process import GENEROUS, ProxyProcess
from tests.support.replies import DONE, data, text_chunks, text_stream
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer, Wait

ROLE, TEXT, END = (data(one) for one in text_chunks("Some words"))


def graced(folder: Path, upstream: ScriptedServer, seconds: float) -> ProxyProcess:
    return ProxyProcess(folder, upstream.url, {"server.shutdown_grace_seconds": seconds})


async def until_refusing(proxy: ProxyProcess) -> httpx.Response:
    """Ask, over connections of our own, until it is seen to be going down."""
    async with asyncio.timeout(GENEROUS):
        while True:
            response = await ask(proxy)
            if response.status_code != 200:
                return response


async def ask(proxy: ProxyProcess, *, streamed: bool = False) -> httpx.Response:
    async with proxy.client() as client:
        return await client.post(CHAT, json=body(stream=streamed))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_what_runs_is_finished_and_what_comes_is_refused(
    streamed: bool, upstream: ScriptedServer, tmp_path: Path
) -> None:
    go_on = asyncio.Event()
    upstream.will(Reply.sse(ROLE, TEXT, Wait(go_on), END, DONE))
    upstream.always(text_stream())
    async with graced(tmp_path, upstream, 30) as proxy:
        await proxy.start()
        running = asyncio.create_task(ask(proxy, streamed=streamed))
        await upstream.next_call()
        proxy.process.terminate()
        refused = await until_refusing(proxy)
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
        assert await proxy.ended() == 0


async def test_what_does_not_finish_in_time_is_cut_off(
    upstream: ScriptedServer, tmp_path: Path
) -> None:
    upstream.will(Reply.sse(ROLE, TEXT, SILENCE))
    async with graced(tmp_path, upstream, 0.5) as proxy:
        await proxy.start()
        running = asyncio.create_task(ask(proxy, streamed=True))
        call = await upstream.next_call()
        proxy.process.terminate()
        await proxy.ended()
        assert await call.left_within(1)
        with contextlib.suppress(httpx.TransportError):
            response = await running
            assert b'"error"' in response.content, "a cut must not look like success"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
async def test_idle_it_ends_at_once(
    number: signal.Signals, upstream: ScriptedServer, tmp_path: Path
) -> None:
    async with graced(tmp_path, upstream, 30) as proxy:
        await proxy.start()
        assert await proxy.end(number) == 0


async def test_open_idle_connections_do_not_hold_it_up(
    upstream: ScriptedServer, tmp_path: Path
) -> None:
    async with graced(tmp_path, upstream, 30) as proxy:
        await proxy.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.process.terminate()
        assert await proxy.ended() == 0
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


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("pieces", [(), (ROLE, TEXT)], ids=["nothing", "text"])
async def test_who_is_cut_off_by_the_end_is_told(
    pieces: tuple[bytes, ...], streamed: bool, upstream: ScriptedServer, tmp_path: Path
) -> None:
    upstream.will(Reply.sse(*pieces, SILENCE))
    async with graced(tmp_path, upstream, 0.5) as proxy:
        await proxy.start()
        asking = asyncio.create_task(ask(proxy, streamed=streamed))
        await upstream.next_call()
        await asyncio.sleep(0.3)
        proxy.process.terminate()
        response = await asking
        if streamed and pieces:
            *_, error, done = payloads(response.content)
            assert done == "[DONE]"
            checked_error_body(error, "upstream_unavailable")
        else:
            checked_error(response, 503, "upstream_unavailable")
        assert await proxy.ended() == 0


RESPONSES = "/v1/completions"


async def test_what_passes_through_is_broken_off_and_no_fault(
    upstream: ScriptedServer, tmp_path: Path
) -> None:
    upstream.will(Reply.sse(ROLE, SILENCE))
    log = tmp_path / "log"
    async with graced(tmp_path, upstream, 0.2) as proxy, proxy.client() as client:
        with log.open("wb") as written:
            await proxy.start(written.fileno())
        async with client.stream("POST", RESPONSES, json={"model": "fast"}) as response:
            parts = response.aiter_bytes()
            assert await anext(parts) == ROLE
            proxy.process.terminate()
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(parts)
        assert await proxy.ended() == 0
    said = log.read_text("utf-8")
    assert "broken_off" in said and "Traceback" not in said and "ASGI" not in said


async def test_what_would_have_passed_through_is_refused(
    upstream: ScriptedServer, tmp_path: Path
) -> None:
    upstream.will(Reply.raw(SILENCE))
    log = tmp_path / "log"
    async with graced(tmp_path, upstream, 0.2) as proxy, proxy.client() as client:
        with log.open("wb") as written:
            await proxy.start(written.fileno())
        asking = asyncio.create_task(client.post(RESPONSES, json={"model": "fast"}))
        await (await upstream.next_call()).whole.wait()
        proxy.process.terminate()
        checked_error(await asking, 503, "upstream_unavailable")
        assert await proxy.ended() == 0
    said = log.read_text("utf-8")
    assert "Traceback" not in said and "ASGI" not in said
