"""A server that passes requests on and sees what comes back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Self

import aiohttp
from aiohttp import web

# Each side's own; all else goes through as it came.
_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}
_MOST_BYTES = 2**26  # of a request


class Passing(ABC):
    """Listens on ``port``, or on any free one for 0; ``to``: where requests go.

    Replies have no limit here: both sides have theirs.
    """

    def __init__(self, to: str, port: int = 0) -> None:
        self.to = to
        self._port = port

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._client = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self.answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._client.close()

    @abstractmethod
    async def answer(self, request: web.Request) -> web.StreamResponse: ...

    async def pass_on(
        self,
        request: web.Request,
        body: bytes,
        came: bytearray,
        *,
        to: str = "",
        headers: Mapping[str, str] | None = None,
        begun: Callable[[web.StreamResponse], None] = lambda _: None,
    ) -> web.StreamResponse:
        """Ask, and answer with what comes, which is added to ``came`` piece by piece.

        ``begun``: called with the answer's status and headers before its first byte.
        """
        kept = {k.lower(): v for k, v in request.headers.items() if k.lower() not in _HOP}
        kept |= {"accept-encoding": "identity", **(headers or {})}
        url = (to or self.to) + request.raw_path
        async with self._client.request(
            request.method, url, data=body or None, headers=kept
        ) as reply:
            response = web.StreamResponse(status=reply.status)
            response.headers.extend(
                [(k, v) for k, v in reply.headers.items() if k.lower() not in _HOP]
            )
            begun(response)
            await response.prepare(request)
            async for piece in reply.content.iter_any():
                came += piece
                await response.write(piece)
            await response.write_eof()
        return response
