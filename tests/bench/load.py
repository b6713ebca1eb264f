"""The load: a raw HTTP/1.1 client that costs little, so that two cores are enough to measure with.

Each connection sends its requests one after another and notes, per request, how long the first
piece of text took and how many reads the answer came in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import orjson

from tests.bench.fast_upstream import FIRST_WORD

FIRST = FIRST_WORD.encode()
KEY = "sk-bench-0f3a9c7e5d1b8642a6e4c2f0b9d8e7a1"
SYSTEM = (
    "You are a careful assistant that works in a repository. Read before you write, say what you "
    "did and what you left out, keep to the style you find, and ask when two readings are "
    "possible. Never touch what you were not asked to touch. "
) * 4


def chat_body(directive: str, stream: bool, number: int) -> bytes:
    """A request of about 1.5 kB; 64 different sessions take turns."""
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"Run {number % 64}: what does the parser do with empty?"},
        {"role": "assistant", "content": "It returns None, and the caller takes the default."},
        {"role": "user", "content": f"And where is that tested? {directive}"},
    ]
    body = {"model": "fast", "messages": messages, "temperature": 0.2, "max_tokens": 1024}
    if stream:
        body["stream"] = True
    return orjson.dumps(body)


def http_request(port: int, body: bytes) -> bytes:
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        "user-agent: bench/1\r\naccept: */*\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class LoadError(RuntimeError):
    """What is under test did not answer as it should."""


@dataclass
class Outcome:
    requests: int = 0
    seconds: float = 0.0
    reads: int = 0
    first_text: list[float] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """Takes requests from `source` until it is empty; `ended` is done when the last is answered."""

    def __init__(self, source: Iterator[bytes], outcome: Outcome) -> None:
        loop = asyncio.get_running_loop()
        self.source = source
        self.outcome = outcome
        self.ended: asyncio.Future[None] = loop.create_future()
        self.first_seen: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send_next()

    def send_next(self) -> None:
        request = next(self.source, None)
        if request is None:
            self.finish()
            return
        self.head = b""
        self.remaining: int | None = -1  # -1: in the headers; None: chunked
        self.tail = b""
        self.waiting_for_text = True
        self.sent_at = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.outcome.reads += 1
        if self.waiting_for_text and FIRST in data:
            self.waiting_for_text = False
            self.outcome.first_text.append(time.perf_counter() - self.sent_at)
            if not self.first_seen.done():
                self.first_seen.set_result(None)
        if self.remaining == -1:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, data = self.head[:end].lower(), self.head[end + 4 :]
            if not head.startswith(b"http/1.1 200"):
                self.finish(LoadError(self.head[:600].decode("latin-1")))
                return
            at = head.find(b"content-length:")
            self.remaining = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else None
        if self.remaining is None:
            self.tail = (self.tail + data)[-7:]
            complete = self.tail.endswith(b"\r\n0\r\n\r\n")
        else:
            self.remaining -= len(data)
            complete = self.remaining <= 0
        if complete:
            self.outcome.requests += 1
            self.send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        self.finish(LoadError(f"the connection ended early: {exc!r}"))

    def finish(self, error: Exception | None = None) -> None:
        if not self.ended.done():
            if error:
                self.ended.set_exception(error)
            else:
                self.ended.set_result(None)
        if error and not self.first_seen.done():
            self.first_seen.set_exception(error)
            self.first_seen.exception()
        self.transport.close()


async def run_load(
    port: int, make_body: Callable[[int], bytes], connections: int, requests: int
) -> Outcome:
    """Send `requests` requests over `connections` connections; the first bad one raises."""
    loop = asyncio.get_running_loop()
    outcome = Outcome()
    prepared = [http_request(port, make_body(number)) for number in range(min(requests, 64))]
    source = (prepared[number % len(prepared)] for number in range(requests))
    started = time.perf_counter()
    open_connections = []
    for _ in range(min(connections, requests)):
        pair = await loop.create_connection(lambda: Connection(source, outcome), "127.0.0.1", port)
        open_connections.append(pair[1])
    await asyncio.gather(*(connection.ended for connection in open_connections))
    outcome.seconds = time.perf_counter() - started
    return outcome


class HeldStreams:
    """Streams that have said their first words and stay open until `close`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections: list[Connection] = []

    async def grow_to(self, count: int, at_once: int = 25, within: float = 60) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(within):
            while len(self.connections) < count:
                batch = []
                for number in range(min(at_once, count - len(self.connections))):
                    body = chat_body("hold=1", True, len(self.connections) + number)
                    source = iter([http_request(self.port, body)])
                    pair = await loop.create_connection(
                        lambda source=source: Connection(source, Outcome()), "127.0.0.1", self.port
                    )
                    batch.append(pair[1])
                await asyncio.gather(*(connection.first_seen for connection in batch))
                self.connections += batch

    async def close(self) -> None:
        for connection in self.connections:
            connection.ended.cancel()
            connection.transport.close()
        await asyncio.sleep(0)
