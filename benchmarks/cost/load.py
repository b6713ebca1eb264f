"""The load: a raw HTTP/1.1 client that costs little, so that two cores are enough to measure with.

Each connection sends its requests one after another and notes, per request, how long the first
piece of text took.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import orjson

from benchmarks.upstream import FIRST_WORD

FIRST = FIRST_WORD.encode()
LONG_WAIT = 0.5  # seconds
KEY = "sk-bench-0f3a9c7e5d1b8642a6e4c2f0b9d8e7a1"
CHAT_PATH = "/v1/chat/completions"
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
    body = {"model": "fast", "messages": messages, "temperature": 0.2, "max_tokens": 4096}
    if stream:
        body["stream"] = True
    return orjson.dumps(body)


def http_request(port: int, body: bytes, headers: str = "", path: str = CHAT_PATH) -> bytes:
    """``headers``: more of them, each a line with its end."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        "user-agent: bench/1\r\naccept: */*\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {KEY}\r\n{headers}content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class LoadError(RuntimeError):
    """What is under test did not answer as it should."""


@dataclass
class Outcome:
    """`first_text`, `took`: seconds of the requests sent at `counts_from` or later.

    `unanswered`: how many of `first_text` are only what they had waited when all was over.
    """

    requests: int = 0
    seconds: float = 0.0
    first_text: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    counts_from: float = 0.0
    unanswered: int = 0


class Connection(asyncio.Protocol):
    """Takes requests from `source` until it is empty; `ended` is done when the last is answered."""

    def __init__(self, source: Iterator[bytes], outcome: Outcome) -> None:
        loop = asyncio.get_running_loop()
        self.source, self.outcome = source, outcome
        self.ended: asyncio.Future[None] = loop.create_future()
        self.first_seen: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.send()

    def send(self) -> None:
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
        if self.waiting_for_text and FIRST in data:
            self.waiting_for_text = False
            if self.sent_at >= self.outcome.counts_from:
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
            if self.sent_at >= self.outcome.counts_from:
                self.outcome.took.append(time.perf_counter() - self.sent_at)
            self.send()

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

    def leave(self) -> None:
        """End it, whatever it is waiting for."""
        if not self.ended.cancel() and not self.ended.cancelled():
            self.ended.exception()  # seen: one that failed is told by the first of them
        self.transport.close()


async def connect(port: int, source: Iterator[bytes], outcome: Outcome) -> Connection:
    loop = asyncio.get_running_loop()
    made = await loop.create_connection(lambda: Connection(source, outcome), "127.0.0.1", port)
    return made[1]


async def drive(port: int, source: Iterator[bytes], connections: int) -> Outcome:
    """Send all requests of `source` over `connections` connections; the first bad one raises."""
    outcome = Outcome()
    started = time.perf_counter()
    opened = [await connect(port, source, outcome) for _ in range(connections)]
    try:
        await asyncio.gather(*(connection.ended for connection in opened))
    finally:
        for connection in opened:
            connection.leave()
    outcome.seconds = time.perf_counter() - started
    return outcome


async def open_streams(
    port: int, source: Iterator[bytes], streams: int, *, ramp: float, seconds: float
) -> Outcome:
    """Keep `streams` streams open, begun over `ramp` seconds; note those begun in `seconds` after.

    `source` is endless. What is still open at the end is left, as a client leaves it; who has
    waited for its first text for long by then counts with that.
    """
    outcome = Outcome(counts_from=time.perf_counter() + ramp, seconds=seconds)
    opened: list[Connection] = []
    try:
        async with asyncio.timeout(ramp + seconds):
            for _ in range(streams):
                opened.append(await connect(port, source, outcome))
                await asyncio.sleep(ramp / streams)
            await asyncio.gather(*(connection.ended for connection in opened))
    except TimeoutError:
        pass
    finally:
        for connection in opened:
            connection.leave()
    for connection in opened:
        waited = time.perf_counter() - connection.sent_at
        if connection.waiting_for_text and waited > LONG_WAIT:
            outcome.first_text.append(waited)
            outcome.unanswered += 1
    return outcome


async def hold_streams(port: int, headers: str, count: int, at_once: int = 25) -> list[Connection]:
    """Streams that have said their first words and stay open until each is left."""
    held: list[Connection] = []
    while len(held) < count:
        first = len(held)
        for number in range(first, min(first + at_once, count)):
            request = http_request(port, chat_body("hold=1", True, number), headers)
            held.append(await connect(port, iter([request]), Outcome()))
        await asyncio.gather(*(connection.first_seen for connection in held[first:]))
    return held
