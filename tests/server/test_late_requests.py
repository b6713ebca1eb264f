"""A head or body that is late: 408 on every path, and the connection is closed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.server import http_protocol, incoming
from tests.server.asking import CHAT, body
from tests.server.conftest import StartProxy
from tests.server.sockets import raw_answer, request
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy

PATHS = (
    CHAT,
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
    "/v1/embeddings",
    "/mlx-stack/sign-in",
)
BODIES = {
    "length, no byte": request(CHAT, b"", "content-length: 100"),
    "length, one byte": request(CHAT, b"{", "content-length: 100"),
    "chunked, no byte": request(CHAT, b"", "transfer-encoding: chunked", "content-length:"),
    "an offer of HTTP/2": request(
        CHAT, b"{", "content-length: 100", "connection: upgrade", "upgrade: h2c"
    ),
}


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_that_stays_away_is_given_up(
    path: str, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "SILENT_SECONDS", 0.3)
    proxy = await start_proxy({"server.admin_key": "k"})
    sent = [content.replace(CHAT.encode(), path.encode()) for content in BODIES.values()]
    sent = [content.replace(b"content-length:\r\n", b"") for content in sent]
    answers = await asyncio.gather(*[raw_answer(proxy, content) for content in sent])
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n"), answer
        assert b"\r\nconnection: close" in answer
        assert b"\r\nx-request-id: " in answer
        error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
        assert error["message"] == "the request body did not arrive in time"
    assert proxy.services.life.running == 0
    metrics = (await proxy.client.get("/metrics")).text
    assert f'mlx_stack_refused_total{{status="408"}} {len(BODIES)}.0' in metrics


async def test_bytes_now_and_then_only_help_until_the_last_moment(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body as slow as it may be, and one that takes longer than any may."""
    monkeypatch.setattr(http_protocol, "WHOLE_SECONDS", 0.5)
    reader, writer = await proxy.raw(request(CHAT, b"{", "content-length: 99999"))

    async def trickle() -> None:
        while True:
            writer.write(b" ")
            await asyncio.sleep(0.02)

    trickling = asyncio.ensure_future(trickle())
    async with asyncio.timeout(20):
        answer = await reader.readuntil(b"\r\n\r\n")
    trickling.cancel()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_slow_body_in_time_is_answered(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "SILENT_SECONDS", 0.5)
    proxy.upstream.will(text_stream("ok"))
    content = json.dumps(body()).encode()
    reader, writer = await proxy.raw(request(CHAT, b"", f"content-length: {len(content)}"))
    for start in range(0, len(content), 10):
        writer.write(content[start : start + 10])
        await asyncio.sleep(0.1)
    async with asyncio.timeout(20):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_a_body_that_nobody_waits_for_is_given_up_too(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is out; the rest of the body stays away."""
    monkeypatch.setattr(http_protocol, "SILENT_SECONDS", 0.3)
    async with asyncio.timeout(20):
        answer = await raw_answer(
            proxy, request("/health", b"{", "content-length: 99", method="GET")
        )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1") == 1


async def test_under_another_server_a_body_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside LiteLLM, whose server waits for a body without end."""
    monkeypatch.setattr(incoming, "SILENT_SECONDS", 0.05)
    messages: asyncio.Queue[Any] = asyncio.Queue()
    receive = incoming.in_time(messages.get)
    messages.put_nowait({"type": "http.request", "body": b"{", "more_body": True})
    assert (await receive())["body"] == b"{"
    with pytest.raises(ProxyError) as refused:
        await receive()
    assert refused.value.status == 408
    messages.put_nowait({"type": "http.request", "body": b"}", "more_body": False})
    await receive()
    leaving = asyncio.ensure_future(receive())
    asyncio.get_running_loop().call_later(0.2, messages.put_nowait, {"type": "http.disconnect"})
    assert (await leaving)["type"] == "http.disconnect", "a reply may take as long as it likes"
