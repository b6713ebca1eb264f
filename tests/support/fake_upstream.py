"""An upstream without a network: its answers are given in pieces."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from mlx_stack_proxy.engine.headers import RawHeaders
from mlx_stack_proxy.engine.upstream import Response, Upstream
from mlx_stack_proxy.settings import UpstreamSettings

FOREVER = asyncio.Event  # a piece that never comes
STREAM = b"text/event-stream"


class FakeResponse(Response):
    """``pieces``: bytes, an error to raise, or ``FOREVER``."""

    def __init__(self, pieces: list[Any], kind: bytes = STREAM, status: int = 200) -> None:
        self.status = status
        self.headers = ((b"content-type", kind),)
        self._pieces = pieces
        self.closed = False

    async def next_bytes(self) -> bytes:
        if not self._pieces:
            return b""
        piece = self._pieces.pop(0)
        if piece is FOREVER:
            await asyncio.Event().wait()
        if isinstance(piece, Exception):
            raise piece
        return bytes(piece)

    async def drain(self) -> None:
        pass

    async def aclose(self) -> None:
        self.closed = True


class FakeUpstream(Upstream, ABC):
    """Answers each request by :meth:`answer`."""

    def __init__(self) -> None:
        super().__init__(UpstreamSettings())

    @abstractmethod
    def answer(self, content: bytes) -> Response:
        """Return the answer to a request's content, or raise ``UpstreamError``."""

    async def send(
        self,
        method: str,
        target: str,
        headers: RawHeaders,
        content: bytes | None = None,
        *,
        call_id: str | None = None,
        repeatable: bool = False,
    ) -> Response:
        return self.answer(content or b"")
