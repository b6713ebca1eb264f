"""Requests as bytes on a socket, and clients that are slow to read."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

from tests.server.asking import CHAT
from tests.support.running_proxy import RunningProxy


def request(path: str = CHAT, content: bytes = b"", *lines: str, method: str = "POST") -> bytes:
    """A request with these lines in its head, and what it needs beside them."""
    given = {line.partition(":")[0].lower() for line in lines}
    usual = {
        "host": "localhost",
        "content-type": "application/json",
        "content-length": str(len(content)),
    }
    rest = [f"{name}: {value}" for name, value in usual.items() if name not in given]
    head = [f"{method} {path} HTTP/1.1", *lines, *rest, "", ""]
    return "\r\n".join(head).encode("latin-1") + content


def post(payload: Any, path: str = CHAT) -> bytes:
    return request(path, json.dumps(payload).encode())


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


async def raw_answer(proxy: RunningProxy, *pieces: bytes) -> bytes:
    """What comes back on a connection to which these bytes were written, until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()
    except ConnectionResetError:  # closed with unread bytes of ours: also an end
        return b""
    finally:
        writer.close()


async def raw_answer_head(proxy: RunningProxy, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(request)
    try:
        return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()
