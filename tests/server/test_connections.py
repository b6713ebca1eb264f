"""One connection and what comes over it, besides a request and its reply as they should be."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
from pathlib import Path
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mlx_stack_proxy.server import open_files
from tests.server.asking import CHAT, body
from tests.server.sockets import post, raw_answer, request
from tests.support.proxy_process import ProxyProcess
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait

UPGRADE = (
    "connection: Upgrade, HTTP2-Settings",
    "upgrade: h2c",
    "http2-settings: AAMAAABkAAQCAAAAAAIAAAAA",
)


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The next response with a length: its head, and its body."""
    async with asyncio.timeout(10):
        first = await reader.readuntil(b"\r\n\r\n")
        length = int(first.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        return first, await reader.readexactly(length)


class Recording:
    """A transport that notes each write."""

    def __init__(self, transport: asyncio.Transport, written: list[bytes]) -> None:
        self._transport, self._written = transport, written

    def write(self, data: bytes) -> None:
        self._written.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_a_whole_response_is_one_write(
    upstream: ScriptedServer, proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    made = HttpToolsProtocol.connection_made
    monkeypatch.setattr(
        HttpToolsProtocol,
        "connection_made",
        lambda self, transport: made(self, Recording(transport, written)),  # type: ignore[arg-type]
    )
    upstream.always(text_stream("Hi"))
    reader, writer = await proxy.raw(post(body()))
    head, content = await answer(reader)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"\r\ndate: " in head
    assert json.loads(content)["choices"][0]["message"]["content"] == "Hi"
    writer.write(request(CHAT, b"", method="GET"))  # over the same connection
    assert (await answer(reader))[0].startswith(b"HTTP/1.1 405 ")
    writer.write(request(CHAT, b"{}", "connection: close"))
    head, content = await answer(reader)
    assert head.startswith(b"HTTP/1.1 400 ") and b"\r\nconnection: close\r\n" in head
    assert await reader.read() == b""
    assert len(written) == 3
    assert await raw_answer(proxy, request("/v1/x", b"", "connection: close", method="TRACE"))
    whole = await raw_answer(proxy, request(CHAT, b"", "connection: close", method="HEAD"))
    assert whole.startswith(b"HTTP/1.1 405 ") and whole.endswith(b"\r\n\r\n")
    assert len(written) == 5
    streamed = await raw_answer(
        proxy, request(CHAT, json.dumps(body(stream=True)).encode(), "connection: close")
    )
    assert streamed.startswith(b"HTTP/1.1 200 ") and streamed.endswith(b"\r\n0\r\n\r\n")
    assert written[5].startswith(b"HTTP/1.1 200 ") and b"\r\n\r\n" in written[5][:-4]
    assert b"".join(written[5:]) == streamed


@pytest.mark.parametrize("together", [True, False], ids=["in one write", "later"])
async def test_garbage_behind_a_request_breaks_no_reply(
    together: bool, proxy: RunningProxy
) -> None:
    asking = post(body(stream=True))
    for garbage in (b"\0\1garbage\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/chat"):
        go_on = asyncio.Event()
        proxy.upstream.will(Reply.sse(Wait(go_on), *text_stream("whole").pieces))
        reader, writer = await proxy.raw(asking + garbage if together else asking)
        await proxy.upstream.next_call()
        if not together:
            writer.write(garbage)
            await writer.drain()
        go_on.set()
        async with asyncio.timeout(10):
            got = await reader.read()
        assert got.startswith(b"HTTP/1.1 200 ") and b"whole" in got
        assert got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
@pytest.mark.parametrize(
    ("pieces", "size"), [("in one write", 300_000), ("the body later", 9), ("byte by byte", 9)]
)
async def test_an_offer_of_http_2_is_passed_over(
    path: str, pieces: str, size: int, proxy: RunningProxy
) -> None:
    """As Java's client makes it with each first request; the next comes on the same connection."""
    chat = path == CHAT
    proxy.upstream.always(text_stream("fine") if chat else Reply.json({"fine": True}))
    content = json.dumps(body(user="x" * size)).encode()
    reader, writer = await proxy.raw(b"")
    for upgrade in (True, False, True):
        whole = request(path, content, *(UPGRADE if upgrade else ()))
        sent = {
            "in one write": [whole],
            "the body later": [whole[: -len(content)], content],
            "byte by byte": [whole[at : at + 1] for at in range(len(whole))],
        }[pieces]
        for piece in sent:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        got, reply = await answer(reader)
        assert got.startswith(b"HTTP/1.1 200 ") and b"fine" in reply
    writer.close()
    assert len(proxy.upstream.calls) == 3
    for call in proxy.upstream.calls:
        assert call.json()["messages"] == body()["messages"]
        assert len(call.json()["user"]) == size
        assert not {"upgrade", "http2-settings"} & set(call.headers)


async def test_a_refusal_before_the_body_closes_the_connection(proxy: RunningProxy) -> None:
    """What comes next there might be the body that was waited for, or another request."""
    lines = ("content-length: 5", "expect: 100-continue", "content-type: a/b")
    reader, _ = await proxy.raw(request(CHAT, b"", *lines))
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


# The limit of open files: raised as far as the system lets us, whatever it says

UNLIMITED = resource.RLIM_INFINITY


class System:
    """What `resource` would say: the two limits, and the most that is taken in truth."""

    def __init__(self, soft: int, hard: int, most: int) -> None:
        self.limits = (soft, hard)
        self._most = most

    def getrlimit(self, _: int) -> tuple[int, int]:
        return self.limits

    def setrlimit(self, _: int, limits: tuple[int, int]) -> None:
        if limits[0] > self._most:
            raise ValueError("current limit exceeds maximum limit")
        assert limits[1] == self.limits[1], "the hard one is not ours to lower"
        self.limits = limits


@pytest.mark.parametrize(
    ("soft", "hard", "most", "expected"),
    [
        (1024, 524_288, 524_288, 65_536),  # systemd's own
        (1024, 4096, 4096, 4096),
        (256, UNLIMITED, 245_760, 65_536),  # a shell on macOS
        (256, UNLIMITED, 61_440, 10_240),  # where kern.maxfilesperproc is lower
        (256, UNLIMITED, 256, 256),
        (1_000_000, 1_000_000, 1_000_000, 1_000_000),  # containers'
        (UNLIMITED, UNLIMITED, 0, UNLIMITED),
        (512, 512, 512, 512),
    ],
)
def test_it_is_raised_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int, expected: int
) -> None:
    system = System(soft, hard, most)
    monkeypatch.setattr(resource, "getrlimit", system.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", system.setrlimit)
    assert open_files.raise_limit() == expected
