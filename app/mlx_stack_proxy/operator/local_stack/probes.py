"""Asking a child over HTTP whether it is ready.

A handful of bytes over a socket of its own: no HTTP library is loaded for it, and none of their
proxy or retry settings can get in the way on loopback.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

# A look every so often is cheap; the gain is a shorter start.
_INTERVAL_SECONDS = 0.2
_ANSWER_SECONDS = 5.0
_NOT_LOADED = "its model could not be loaded"


class Hopeless(Exception):
    """The child runs, but will never be ready; the message says why."""


class HttpProbe:
    """Ready means that a GET is answered with 200."""

    def __init__(self, port: int, path: str, headers: Mapping[str, str] | None = None) -> None:
        self._port = port
        self._path = path
        self._headers = dict(headers or {})
        self.waiting_for = f"GET http://127.0.0.1:{port}{path}"
        self.last_answer = "no answer yet"

    async def ready(self) -> None:
        """Return when the child is ready. Raises :class:`Hopeless`."""
        while (status := await self._ask()) != 200:
            self._judge(status)
            await asyncio.sleep(_INTERVAL_SECONDS)

    async def illness(self) -> str | None:
        """Why a running child must be restarted; ``None`` while it needn't be."""
        return None

    def _judge(self, status: int | None) -> None:
        """Raise :class:`Hopeless` where waiting on is useless."""

    async def _ask(self) -> int | None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                status, body = await fetch(self._port, self._path, headers=self._headers)
        except (OSError, ValueError, TimeoutError) as error:
            self.last_answer = words(error)
            return None
        self.last_answer = f"HTTP {status}" if status == 200 else brief(status, body)
        return status


class ModelServerProbe(HttpProbe):
    """Ready means that the model has been loaded and has written a token.

    ``mlx_lm.server`` answers ``/health`` with 200 while it still loads; if that fails it answers
    503 for ever and goes on running. The token also pays what the first reply costs extra.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port, "/health")

    async def ready(self) -> None:
        await super().ready()
        self.waiting_for = "its model's first token"
        self.last_answer = "no answer yet"
        try:
            status, body = await one_token(self._port, "default_model")
        except (OSError, ValueError) as error:
            raise Hopeless(f"no answer to its first question ({words(error)})") from None
        if b"generation thread died" in body:
            raise Hopeless(_NOT_LOADED)
        if status != 200:
            raise Hopeless(f"its first question got {brief(status, body)}")

    async def illness(self) -> str | None:
        # Only what it says itself counts: no answer may just mean that it is busy.
        return "its model thread has died" if await self._ask() == 503 else None

    def _judge(self, status: int | None) -> None:
        if status == 503:
            raise Hopeless(_NOT_LOADED)


async def one_token(port: int, model: str, key: str = "unused") -> tuple[int, bytes]:
    """Ask a model for one token. Raises ``OSError`` or ``ValueError``."""
    question = {
        "model": model,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 1,
    }
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    body = json.dumps(question).encode()
    return await fetch(port, "/v1/chat/completions", headers=headers, body=body)


async def fetch(
    port: int,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> tuple[int, bytes]:
    """Status and body of one request to loopback. Raises ``OSError`` or ``ValueError``."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.0", f"Host: 127.0.0.1:{port}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        await writer.drain()
        answer = await reader.read()  # HTTP/1.0: to the end of the connection
    finally:
        writer.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/"):
        raise ValueError("not an HTTP answer")
    return int(words[1]), content


def brief(status: int, body: bytes) -> str:
    """An answer that is no success, on one line."""
    text = " ".join(body.decode(errors="replace").split())
    return f"HTTP {status}: {text[:200]}".rstrip(": ")


def words(error: Exception) -> str:
    """What went wrong with a request, for a line of progress."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
