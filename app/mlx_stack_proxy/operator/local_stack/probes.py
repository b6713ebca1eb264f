"""Asking a child over HTTP whether it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

# A look every so often is cheap; the gain is a shorter start.
_INTERVAL_SECONDS = 0.2
_ANSWER_SECONDS = 5.0
_NOT_LOADED = "its model could not be loaded"


class Hopeless(Exception):
    """The child runs, but will never be ready; the message says why."""


class HttpProbe:
    """Ready means that a GET is answered with 200."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
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
                status, body = await fetch(self._port, self._path)
        except (aiohttp.ClientError, TimeoutError) as error:
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
        except aiohttp.ClientError as error:
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
    """Ask a model for one token. Raises as :func:`fetch`."""
    question = [{"role": "user", "content": "Hello"}]
    body = {"model": model, "messages": question, "max_tokens": 1}
    return await fetch(port, "/v1/chat/completions", body, {"Authorization": f"Bearer {key}"})


async def fetch(
    port: int,
    path: str,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Status and body of a GET, or of a POST of JSON, on loopback. Raises ``ClientError``."""
    method, url = "GET" if body is None else "POST", f"http://127.0.0.1:{port}{path}"
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()) as session,
        session.request(method, url, json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.read()


def brief(status: int, body: bytes) -> str:
    """An answer that is no success, on one line."""
    text = " ".join(body.decode(errors="replace").split())
    return f"HTTP {status}: {text[:200]}".rstrip(": ")


def words(error: Exception) -> str:
    """What went wrong with a request, for a line of progress."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
