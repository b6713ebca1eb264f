"""A bare relay, the yardstick: raw ASGI and httpx, the request forwarded, the bytes passed on.

It looks at nothing, so what it costs is what any proxy of this make has to pay. The address of the
upstream comes in RELAY_UPSTREAM. Run by uvicorn as a factory.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from httpx_aiohttp import AiohttpTransport

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CONNECTIONS = 4096
DROP_REQUEST = {b"host", b"connection", b"content-length", b"transfer-encoding"}
DROP_RESPONSE = {b"connection", b"transfer-encoding", b"keep-alive"}


def relay() -> App:
    base = os.environ["RELAY_UPSTREAM"]
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    client: httpx.AsyncClient

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal client
        if scope["type"] == "lifespan":
            await receive()
            client = httpx.AsyncClient(transport=AiohttpTransport(limits=limits), timeout=None)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await client.aclose()
            await send({"type": "lifespan.shutdown.complete"})
            return
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name not in DROP_REQUEST
        ]
        url, content = base + scope["path"], await _body(receive)
        request = client.build_request(scope["method"], url, content=content, headers=headers)
        reply = await client.send(request, stream=True)
        kept = [one for one in reply.headers.raw if one[0].lower() not in DROP_RESPONSE]
        start = {"type": "http.response.start", "status": reply.status_code, "headers": kept}
        try:
            await send(start)
            async for data in reply.aiter_raw():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            await reply.aclose()
        await send({"type": "http.response.body", "body": b""})

    return app


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    return body
