"""One connection and what comes over it, beside a request and its reply as they should be."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from tests.server.asking import CHAT, body
from tests.support.proxy_process import ProxyProcess
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait

UPGRADE = (
    "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
    "http2-settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
)


def head(port: int, length: int, more: str = "", path: str = CHAT) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"content-length: {length}\r\n{more}\r\n"
    ).encode()


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The next response with a length: its head, and its body."""
    async with asyncio.timeout(10):
        first = await reader.readuntil(b"\r\n\r\n")
        length = int(first.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        return first, await reader.readexactly(length)


@pytest.mark.parametrize(
    "garbage", [b"\0\1garbage\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/chat"]
)
@pytest.mark.parametrize("together", [True, False], ids=["in one write", "later"])
async def test_garbage_behind_a_request_breaks_no_reply(
    garbage: bytes, together: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    go_on = asyncio.Event()
    upstream.will(Reply.sse(Wait(go_on), *text_stream("whole").pieces))
    content = json.dumps(body(stream=True)).encode()
    request = head(proxy.port, len(content)) + content
    reader, writer = await proxy.raw(request + garbage if together else request)
    await upstream.next_call()
    if not together:
        writer.write(garbage)
        await writer.drain()
    go_on.set()
    async with asyncio.timeout(10):
        got = await reader.read()
    assert got.startswith(b"HTTP/1.1 200 ") and b"whole" in got
    assert got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
@pytest.mark.parametrize("pieces", ["in one write", "the body later", "byte by byte"])
async def test_an_offer_of_http_2_is_passed_over(
    path: str, pieces: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    """As Java's client makes it with each first request; the next comes on the same connection."""
    chat = path == CHAT
    upstream.always(text_stream("fine") if chat else Reply.json({"fine": True}))
    content = json.dumps(body()).encode()
    first = head(proxy.port, len(content), UPGRADE, path)
    reader, writer = await proxy.raw(b"")
    for upgrade in (True, False, True):
        start = first if upgrade else head(proxy.port, len(content), path=path)
        whole = start + content
        sent = {
            "in one write": [whole],
            "the body later": [start, content],
            "byte by byte": [whole[at : at + 1] for at in range(len(whole))],
        }[pieces]
        for piece in sent:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        got, reply = await answer(reader)
        assert got.startswith(b"HTTP/1.1 200 ") and b"fine" in reply
    writer.close()
    assert len(upstream.calls) == 3
    for call in upstream.calls:
        assert call.json()["messages"] == body()["messages"]
        assert not {"upgrade", "http2-settings"} & set(call.headers)


async def test_an_offer_of_http_2_with_a_long_body(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(text_stream("fine"))
    content = json.dumps(body(user="x" * 300_000)).encode()
    reader, writer = await proxy.raw(head(proxy.port, len(content), UPGRADE) + content)
    got, _ = await answer(reader)
    writer.close()
    assert got.startswith(b"HTTP/1.1 200 ")
    assert len(upstream.calls[0].json()["user"]) == 300_000


async def test_a_refusal_before_the_body_closes_the_connection(proxy: RunningProxy) -> None:
    """What comes next there might be the body that was waited for, or another request."""
    request = head(proxy.port, 5, "expect: 100-continue\r\n").replace(b"application/json", b"a/b")
    reader, _ = await proxy.raw(request)
    async with asyncio.timeout(10):
        got = await reader.read()
    assert got.startswith(b"HTTP/1.1 415 ") and b"connection: close\r\n" in got


async def test_a_shell_that_allows_few_open_files_is_no_limit(
    upstream: ScriptedServer, tmp_path: Path
) -> None:
    """macOS gives 256 to what is started in a terminal; here it is 64, and 100 clients connect."""
    async with (
        ProxyProcess(tmp_path, upstream.url, open_files=64) as process,
        contextlib.AsyncExitStack() as clients,
    ):
        await process.start()
        for _ in range(100):
            _, writer = await asyncio.open_connection("127.0.0.1", process.port)
            clients.callback(writer.close)
        upstream.will(Reply.sse(*text_stream("served").pieces))
        async with process.client() as client:
            response = await client.post(CHAT, json=body())
        assert "served" in response.text
