"""Stands between an agent and the proxy, passes everything on, and remembers it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
import httpx
from aiohttp import web

from tests.faults import spoken
from tests.faults.clients import Outcome, read

Json = dict[str, Any]
# Each side's own; all else goes through as it came.
_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}


@dataclass
class Seen:
    """One request of an agent, and what it got."""

    method: str
    path: str
    headers: dict[str, str]
    body: Json
    status: int = 0
    reply_headers: dict[str, str] = field(default_factory=dict)
    reply: bytearray = field(default_factory=bytearray)
    left: bool = False  # the agent went before the end

    def outcome(self) -> Outcome:
        response = httpx.Response(
            self.status, headers=self.reply_headers, content=bytes(self.reply)
        )
        named = {row.path: name for name, row in spoken.SPOKEN.items()}
        return read(response, speaks=named.get(self.path, spoken.CHAT))


class Tap:
    """Listens on `port`; `to`: the proxy's URL, or LiteLLM's, with the `key` that it wants.

    Requests are in `seen`, in the order they came. An operator's questions go to the proxy at
    `operator`, where LiteLLM is asked all else.
    """

    def __init__(self, port: int, to: str, key: str = "", operator: str = "") -> None:
        self.port = port
        self.seen: list[Seen] = []
        self._to = to
        self._operator = operator or to
        self._key = key

    async def __aenter__(self) -> Self:
        self._client = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
        )
        self._runner = web.ServerRunner(web.Server(self._pass_on), handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._client.close()

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        data = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen = Seen(request.method, request.path, headers, _json(data))
        self.seen.append(seen)
        kept = {name: value for name, value in headers.items() if name not in _HOP}
        if self._key:
            kept["authorization"] = f"Bearer {self._key}"
        to = self._operator if request.path.startswith("/mlx-stack/") else self._to
        try:
            async with self._client.request(
                request.method, to + request.path_qs, data=data or None, headers=kept
            ) as reply:
                return await self._answer(request, reply, seen)
        except (asyncio.CancelledError, ConnectionError):
            seen.left = True
            raise

    async def _answer(
        self, request: web.BaseRequest, reply: aiohttp.ClientResponse, seen: Seen
    ) -> web.StreamResponse:
        seen.status = reply.status
        seen.reply_headers = {name.lower(): value for name, value in reply.headers.items()}
        kept = {name: value for name, value in seen.reply_headers.items() if name not in _HOP}
        answer = web.StreamResponse(status=reply.status, headers=kept)
        await answer.prepare(request)
        try:
            async for piece in reply.content.iter_any():
                seen.reply += piece
                await answer.write(piece)
            await answer.write_eof()
        except aiohttp.ClientConnectionResetError:  # of the agent's side
            seen.left = True
        return answer


def _json(data: bytes) -> Json:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
