"""Calls of an ASGI app in place of LiteLLM's routes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mlx_stack_proxy.engine.upstream import Response, UpstreamError
from mlx_stack_proxy.litellm import in_process
from mlx_stack_proxy.litellm.in_process import MAX_WAITING, InProcess, client_scope
from mlx_stack_proxy.settings import UpstreamSettings

Json = dict[str, Any]
START = {"type": "http.response.start", "status": 200, "headers": [(b"X-One", b"1")]}
CLIENT = {"type": "http", "client": ("10.0.0.1", 1), "headers": [(b"host", b"here")], "path": "/"}


def part(body: bytes, more: bool = True) -> Json:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def send(app: Callable[..., Awaitable[None]], content: Any = b"{}") -> Response:
    client_scope.set(CLIENT)
    upstream = InProcess(UpstreamSettings(), app)
    headers = [(b"authorization", b"Bearer sk-1")]
    target = "/v1/chat%20x?a=b"
    return await upstream.send("POST", target, headers, content, call_id="req_1", repeatable=True)


async def test_the_app_gets_the_request_on_the_clients_connection() -> None:
    seen: list[Any] = []

    async def app(scope: Json, receive: Any, send: Any) -> None:
        seen.extend([scope, await receive()])
        await send(START)
        await send(part(b"yes", more=False))

    response = await send(app)
    assert (response.status, response.header(b"x-one")) == (200, b"1")
    assert await response.read() == b"yes"
    scope, body = seen
    assert body == {"type": "http.request", "body": b"{}", "more_body": False}
    asked = [scope[name] for name in ("method", "path", "raw_path", "query_string", "client")]
    assert asked == ["POST", "/v1/chat x", b"/v1/chat%20x", b"a=b", ("10.0.0.1", 1)]
    assert dict(scope["headers"]) == {
        b"authorization": b"Bearer sk-1",
        b"host": b"here",
        b"content-length": b"2",
        b"x-litellm-call-id": b"req_1",
    }


async def test_pieces_come_while_the_app_still_writes_and_it_waits_for_the_reader() -> None:
    written = 0

    async def app(scope: Json, receive: Any, send: Any) -> None:
        nonlocal written
        await send(START)
        for _ in range(10 * MAX_WAITING):
            written += 1
            await send(part(b"x"))
        await send(part(b"", more=False))

    response = await send(app)
    await asyncio.sleep(0)
    assert written == MAX_WAITING + 1
    assert len(await response.read()) == 10 * MAX_WAITING


async def test_an_app_that_fails_is_an_upstream_that_fails() -> None:
    async def at_once(scope: Json, receive: Any, send: Any) -> None:
        raise RuntimeError("no")

    async def later(scope: Json, receive: Any, send: Any) -> None:
        await send(START)
        await send(part(b"half"))
        raise RuntimeError("no")

    with pytest.raises(UpstreamError, match="without an answer"):
        await send(at_once)
    response = await send(later)
    assert await response.next_bytes() == b"half"
    with pytest.raises(UpstreamError, match="broke off"):
        await response.next_bytes()


async def test_an_answer_that_is_left_is_a_client_that_has_gone() -> None:
    told = asyncio.Event()

    async def app(scope: Json, receive: Any, send: Any) -> None:
        await receive()
        await send(START)
        assert (await receive())["type"] == "http.disconnect"
        with pytest.raises(OSError):
            await send(part(b"nobody reads this"))
        told.set()

    response = await send(app)
    await response.aclose()
    await told.wait()


@pytest.mark.parametrize("answered", [True, False])
async def test_an_app_that_runs_on_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    monkeypatch.setattr(in_process, "LEAVE_SECONDS", 0.01)
    running, cancelled = asyncio.Event(), asyncio.Event()

    async def app(scope: Json, receive: Any, send: Any) -> None:
        if answered:
            await send(START)
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    asking = asyncio.create_task(send(app))
    await running.wait()
    if answered:
        await (await asking).aclose()
    else:
        asking.cancel()
    await cancelled.wait()
