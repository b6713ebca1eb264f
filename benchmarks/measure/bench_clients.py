"""What idle and slow clients cost: ``python -m benchmarks.measure.bench_clients``.

Opens connections that ask for nothing more (10,000), then clients that ask for a stream and read
none of it (1,000); prints the proxy's memory, and whether others are served. Some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import re
import socket
import statistics
import tempfile
import time
from pathlib import Path

import httpx

from benchmarks.measure.servers import Server, start_proxy
from mlx_stack_proxy.server import open_files
from tests.support.replies import DONE, chunk, data, long_text, text_chunks, text_stream
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole

MB = 1024 * 1024
AT_ONCE = 200
# The stream is 6 MB, more than the system's own buffers take, but little text: the text of a reply
# is kept until it ends, whoever reads it, and is bounded by max_output_tokens.
CHUNKS, PADDING = 400, 16_000
ASKED = 50
QUIET_WITHIN = 240  # looks, a second apart
HELLO = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


def replies() -> WhenWhole:
    """A long answer for who asks for one, a short one for all others."""
    role, _, end = (data(one) for one in text_chunks(""))
    words = long_text(8 * CHUNKS)
    padding = "." * PADDING
    pieces = [
        data({**chunk({"content": words[8 * number : 8 * number + 8]}), "padding": padding})
        for number in range(CHUNKS)
    ]
    long, short = Reply.sse(role, *pieces, end, DONE), text_stream("Hello")

    def choose(call: Call) -> Reply:
        return long if b"something long" in call.body else short

    return WhenWhole(choose)


def question(text: str) -> bytes:
    asked = {"model": "fast", "stream": True, "messages": [{"role": "user", "content": text}]}
    content = json.dumps(asked).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def connect(port: int, request: bytes, buffer: int | None, read: bool) -> socket.socket:
    """A client that has sent its request; ``read``: and taken the first of the answer."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setblocking(False)
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, request)
    if read:
        await loop.sock_recv(client, 65536)
    return client


async def connect_all(
    count: int, port: int, request: bytes, buffer: int | None, read: bool
) -> list[socket.socket]:
    found: list[socket.socket] = []
    while len(found) < count:
        more = min(AT_ONCE, count - len(found))
        each = (connect(port, request, buffer, read) for _ in range(more))
        found += await asyncio.gather(*each)
    return found


async def others(port: int) -> str:
    """How a client fares that asks now, over connections of its own."""
    seconds, good = [], 0
    for number in range(ASKED):
        begun = time.perf_counter()
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            messages = [{"role": "user", "content": f"Say hello, {number}."}]
            response = await client.post(url, json={"model": "fast", "messages": messages})
        seconds.append(time.perf_counter() - begun)
        good += response.status_code == 200
    return f"{good}/{ASKED} served, median {statistics.median(seconds) * 1000:.0f} ms"


async def in_flight(port: int) -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    found = re.search(r'^mlx_stack_in_flight{tier="fast"} ([0-9.]+)', text, re.MULTILINE)
    return int(float(found[1])) if found else 0


async def settled(proxy: Server) -> float:
    """Its memory in MB once it has nothing more to do, which may take some minutes."""
    for _ in range(QUIET_WITHIN):
        before = proxy.cpu_seconds()
        await asyncio.sleep(1)
        if proxy.cpu_seconds() - before < 0.1:
            break
    else:
        print("  (still busy)")
    return proxy.rss() / MB


class Crowd:
    """The clients of one proxy, and what they cost it."""

    def __init__(self, proxy: Server) -> None:
        self._proxy = proxy
        self._clients: list[socket.socket] = []

    async def line(self, what: str, before: float = 0.0, count: int = 0) -> float:
        """Print how it stands; the memory in MB."""
        now = await settled(self._proxy)
        each = f", {(now - before) * 1024 / count:.0f} kB each" if count else ""
        print(f"{what}: {now:.0f} MB{each}; others: {await others(self._proxy.port)}")
        return now

    async def idle(self, count: int) -> None:
        self._clients += await connect_all(count, self._proxy.port, HELLO, None, True)

    async def slow(self, count: int) -> None:
        request = question("Write something long.")
        self._clients += await connect_all(count, self._proxy.port, request, 4096, True)
        await settled(self._proxy)
        print(f"{await in_flight(self._proxy.port):,} replies are held back")

    def leave(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()


async def measure(idle: int, slow: int, rounds: int, folder: Path) -> None:
    async with ScriptedServer(("fast",)) as upstream:
        upstream.always(replies())
        # Starting waits for it to answer, which asks the upstream above in this very loop.
        proxy = await asyncio.to_thread(start_proxy, upstream.port, folder)
        crowd = Crowd(proxy)
        try:
            await others(proxy.port)
            for _ in range(rounds):
                alone = await crowd.line("nobody else")
                await crowd.idle(idle)
                with_idle = await crowd.line(f"{idle:,} idle connections", alone, idle)
                await crowd.slow(slow)
                await crowd.line(f"and {slow:,} that read nothing", with_idle, slow)
                crowd.leave()
            await crowd.line("all of them gone")
        finally:
            crowd.leave()
            proxy.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--slow", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3, help="whether memory grows with each")
    args = parser.parse_args()
    allowed = open_files.raise_limit()
    if allowed < args.idle + 3 * args.slow + 500:
        raise SystemExit(f"only {allowed} open files are allowed here: ask for fewer clients")
    print(f"{platform.platform()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(prefix="bench-clients-") as folder:
        asyncio.run(measure(args.idle, args.slow, args.rounds, Path(folder)))


if __name__ == "__main__":
    main()
