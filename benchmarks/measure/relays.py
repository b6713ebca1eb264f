"""Bare relays, the yardsticks: raw ASGI, the request forwarded, the answer's bytes passed on.

They look at nothing, so what they cost is what any proxy of this make has to pay. The address of
the upstream comes in RELAY_UPSTREAM. Run by uvicorn as factories.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CONNECTIONS = 4096
DROP_REQUEST = {b"host", b"connection", b"content-length", b"transfer-encoding"}
DROP_RESPONSE = {b"connection", b"transfer-encoding", b"keep-alive"}


async def read_body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    return body


def request_headers(scope: Scope) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name not in DROP_REQUEST
    ]


def response_start(status: int, headers: Any) -> dict[str, Any]:
    kept = [(name, value) for name, value in headers if name.lower() not in DROP_RESPONSE]
    return {"type": "http.response.start", "status": status, "headers": kept}


async def lifespan(
    receive: Receive, send: Send, start: Callable[[], None], stop: Callable[[], Awaitable[None]]
) -> None:
    await receive()
    start()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await stop()
    await send({"type": "lifespan.shutdown.complete"})


def aiohttp_relay() -> App:
    base = os.environ["RELAY_UPSTREAM"]
    session: aiohttp.ClientSession

    def start() -> None:
        nonlocal session
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send, start, lambda: session.close())
            return
        body = await read_body(receive)
        async with session.request(
            scope["method"], base + scope["path"], data=body, headers=request_headers(scope)
        ) as reply:
            await send(response_start(reply.status, reply.raw_headers))
            async for data in reply.content.iter_any():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


def httpx_relay() -> App:
    base = os.environ["RELAY_UPSTREAM"]
    client: httpx.AsyncClient

    def start() -> None:
        nonlocal client
        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        client = httpx.AsyncClient(transport=AiohttpTransport(limits=limits), timeout=None)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send, start, lambda: client.aclose())
            return
        body = await read_body(receive)
        request = client.build_request(
            scope["method"], base + scope["path"], content=body, headers=request_headers(scope)
        )
        reply = await client.send(request, stream=True)
        try:
            await send(response_start(reply.status_code, reply.headers.raw))
            async for data in reply.aiter_raw():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            await reply.aclose()
        await send({"type": "http.response.body", "body": b""})

    return app


def transport_relay() -> App:
    """httpx's request and response over the aiohttp transport, without httpx's client around."""
    base = os.environ["RELAY_UPSTREAM"]
    transport: AiohttpTransport

    def start() -> None:
        nonlocal transport
        transport = AiohttpTransport(limits=httpx.Limits(max_connections=CONNECTIONS))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send, start, lambda: transport.aclose())
            return
        body = await read_body(receive)
        request = httpx.Request(
            scope["method"], base + scope["path"], content=body, headers=request_headers(scope)
        )
        reply = await transport.handle_async_request(request)
        try:
            await send(response_start(reply.status_code, reply.headers.raw))
            async for data in reply.stream:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            await reply.stream.aclose()
        await send({"type": "http.response.body", "body": b""})

    return app
