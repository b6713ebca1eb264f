"""Odd clients at odd moments: slow readers, busy loops, headers and bodies nobody would send."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from typing import Any

from app.core.chunks import made
from app.core.gate import Gate
from tests.shell.asking import CHAT, KEEP_ALIVE, ask, body, text_of
from tests.shell.conftest import StartProxy
from tests.support.replies import DONE, TOOLS, chunk, data, text_chunks, text_stream, with_role
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import SILENCE, Delay, Reply, ScriptedServer

ROLE, TEXT, END = (data(one) for one in text_chunks("Half an answer"))
BAD_CALL = with_role(
    {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "nope", "arguments": "{}"}}]},
    finish="tool_calls",
)


def post(payload: Any, path: str = CHAT) -> bytes:
    content = json.dumps(payload).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(content) + content


async def slow_client(proxy: RunningProxy, request: bytes) -> socket.socket:
    """A connection of which nothing is read yet, and which takes little unread."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", proxy.port))
    await loop.sock_sendall(client, request)
    return client


async def read_all(client: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    received = bytearray()
    async with asyncio.timeout(20):
        while not received.endswith(b"\r\n0\r\n\r\n"):
            data = await loop.sock_recv(client, 1 << 20)
            assert data, f"cut off after {bytes(received[-80:])!r}"
            received += data
    return bytes(received)


async def test_a_reply_that_ends_while_a_keep_alive_waits_for_a_slow_reader_is_whole(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"stream.keepalive_seconds": 0.2})
    long = data(chunk({"content": "y" * 9_000_000}))  # more than the sockets between take
    upstream.will(Reply.sse(ROLE, long, Delay(1), END, DONE))
    client = await slow_client(proxy, post(body(stream=True)))
    call = await upstream.next_call()
    async with asyncio.timeout(20):
        await call.answered.wait()
    await asyncio.sleep(0.3)
    received = await read_all(client)
    client.close()
    assert KEEP_ALIVE in received
    assert b'"finish_reason": "stop"' in received[-400:]
    assert DONE in received[-40:]


async def test_a_client_that_never_reads_gives_its_place_back_in_the_end(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    limits = {"max_concurrency": 1, "total_timeout": 1}
    proxy = await start_proxy({f"tiers.fast.{key}": value for key, value in limits.items()})
    long = data(chunk({"content": "y" * 500_000}))
    upstream.will(Reply.sse(ROLE, *[long] * 40, SILENCE), text_stream("next"))
    client = await slow_client(proxy, post(body(stream=True)))
    stuck = await upstream.next_call()
    async with asyncio.timeout(10):
        assert (await ask(proxy)).status_code == 200
    assert stuck.gone.is_set()
    client.close()


async def test_held_text_goes_out_before_what_came_after_it(start_proxy: StartProxy) -> None:
    """The time to let text go is reached in the very moment in which the next text comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_two_words, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with running_proxy(url, {"stream.hold_seconds": 0.5}) as proxy:
            asyncio.get_running_loop().call_later(0.3, time.sleep, 0.7)
            response = await ask(proxy, stream=True, tools=TOOLS)
    assert text_of(response.content) == "one two three"


def _two_words(listener: socket.socket) -> None:
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: "
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            if b"/v1/models" in connection.recv(65536)[:40]:
                connection.sendall(head + b'application/json\r\n\r\n{"data": [{"id": "fast"}]}')
                continue
            connection.sendall(head + b"text/event-stream\r\n\r\n" + ROLE)
            connection.sendall(data(chunk({"content": "one "})))
            time.sleep(0.6)
            connection.sendall(data(chunk({"content": "two "})))
            time.sleep(0.8)
            connection.sendall(data(chunk({"content": "three"})) + END + DONE)


def test_text_that_time_does_not_release_is_not_waited_for_again() -> None:
    class Nothing:
        def feed(self, delta: str) -> str:
            return ""

    gate = Gate(hold_seconds=1, text_hold=Nothing())
    assert gate.push(made(chunk({"content": "<tool_call>"})), 0) == []
    assert gate.next_release() == 1
    assert gate.tick(1) == []
    assert gate.next_release() is None


async def test_a_retry_closes_the_response_of_the_attempt_before(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"reliability.tool_validation.max_retries": 1})
    first = [data(one) for one in BAD_CALL]
    upstream.will(Reply.sse(*first, DONE, SILENCE), Reply.sse(ROLE, TEXT, SILENCE))
    asking = asyncio.create_task(ask(proxy, tools=TOOLS))
    assert await (await upstream.next_call()).left_within(3)
    asking.cancel()
