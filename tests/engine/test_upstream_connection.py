"""The edge to LiteLLM over real sockets: what of aiohttp's own doings is kept from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp.client_proto import ResponseHandler

from mlx_stack_proxy.engine.headers import RawHeaders
from mlx_stack_proxy.engine.upstream import CHAT_HEADERS, CHAT_PATH, READ_BUFFER, Upstream
from mlx_stack_proxy.settings import UpstreamSettings
from tests.support.scripted_server import Reply, ScriptedServer, Wait


@pytest.fixture
async def edge(upstream: ScriptedServer) -> AsyncIterator[Upstream]:
    opened = Upstream(UpstreamSettings(base_url=upstream.url))
    yield opened
    await opened.aclose()


@pytest.mark.parametrize("size", [300, READ_BUFFER + 1, 20 * READ_BUFFER])
async def test_a_reader_that_is_slow_gets_all_of_it(
    size: int, upstream: ScriptedServer, edge: Upstream
) -> None:
    """Where more comes than is kept, reading pauses, and goes on once some of it is read."""
    pieces = [bytes([65 + at]) * size for at in range(20)]
    upstream.will(Reply.sse(*pieces))
    response = await edge.send("POST", CHAT_PATH, CHAT_HEADERS, b"{}")
    whole = bytearray()
    while data := await response.next_bytes():
        whole += data
        for _ in range(20):  # what has come is parsed before more of it is asked for
            await asyncio.sleep(0)
    await response.aclose()
    assert bytes(whole) == b"".join(pieces)


@pytest.mark.parametrize("more", [0, 1, 2])
async def test_a_pause_at_the_end_of_a_read_keeps_nothing_back(
    more: int, upstream: ScriptedServer, edge: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser remembers it until its next piece, and keeps what comes behind that."""
    count, paused, read = READ_BUFFER // 16 + more, asyncio.Event(), asyncio.Event()
    theirs = ResponseHandler.pause_reading

    def pause(self: ResponseHandler) -> None:
        paused.set()
        theirs(self)

    monkeypatch.setattr(ResponseHandler, "pause_reading", pause)
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    rest = b"4\r\nbbbb\r\n4\r\ncccc\r\n0\r\n\r\n"
    upstream.will(Reply.raw(head + b"1\r\na\r\n" * count, Wait(read), rest))
    response = await edge.send("POST", CHAT_PATH, CHAT_HEADERS, b"{}")
    if more:
        await paused.wait()  # too many chunks wait to be read
    whole = b""
    async with asyncio.timeout(10):
        while data := await response.next_bytes():
            whole += data
            read.set()
    await response.aclose()
    assert whole == b"a" * count + b"bbbbcccc"


OURS = [b"user-agent", b"accept", b"accept-encoding", b"content-type"]


@pytest.mark.parametrize("given", [[], OURS[:1], OURS[1:], OURS])
async def test_of_what_aiohttp_would_say_by_itself_nothing_goes_out(
    given: list[bytes], upstream: ScriptedServer, edge: Upstream
) -> None:
    headers: RawHeaders = [(name, b"text/x") for name in given]
    for number in range(2):  # the second time they are known
        upstream.will(Reply(200))
        response = await edge.send("POST", "/v1/x", headers, b"{}", call_id=f"c{number}")
        await response.aclose()
        call = await upstream.next_call()
        said = {name: call.header(name.decode()) for name in OURS}
        assert said == {name: "text/x" if name in given else None for name in OURS}
