"""An upstream without a network: a function of the test answers each request."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

import httpx

from mlx_stack_proxy.engine.headers import RawHeaders
from mlx_stack_proxy.engine.upstream import Response, Upstream, UpstreamError
from mlx_stack_proxy.settings import UpstreamSettings

Handler = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]


class _Answer(Response):
    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        self._body = answer.content

    async def next_bytes(self) -> bytes:
        body, self._body = self._body, b""
        return body

    async def aclose(self) -> None:
        pass


class MockedUpstream(Upstream):
    """``handler`` answers; an ``httpx.ConnectError`` that it raises is a refused connection."""

    def __init__(self, settings: UpstreamSettings, handler: Handler) -> None:
        super().__init__(settings)
        self._handler = handler

    async def send(
        self,
        method: str,
        target: str,
        headers: RawHeaders,
        content: bytes | None = None,
        *,
        call_id: str | None = None,
    ) -> Response:
        try:
            answer = self._handler(httpx.Request(method, self._base_url + target, headers=headers))
            return _Answer(await answer if inspect.isawaitable(answer) else answer)
        except httpx.ConnectError as error:
            raise UpstreamError("the connection was refused", unreachable=True) from error
