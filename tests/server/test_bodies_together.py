"""What the bodies of all requests may take together, wherever they are in their lives."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.server.asking import CHAT, ask, body, checked_error
from tests.server.conftest import StartProxy
from tests.server.counting import BUDGET
from tests.server.sockets import raw_answer
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait

LONG = {"messages": [{"role": "user", "content": "x" * 6_000}]}
TOGETHER = {"server.max_body_bytes": 10_000, "server.max_buffered_bytes": 15_000}
EMBEDDINGS = "/v1/embeddings"


def half_sent(path: str, size: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % (size + 1) + b"x" * size


async def refused(proxy: RunningProxy, path: str = CHAT) -> Any:
    response = await proxy.client.post(path, json={**body(), **LONG})
    error = checked_error(response, 503, "upstream_unavailable")
    assert "max_buffered_bytes" in error["message"]
    assert response.headers["retry-after"] == "5"
    return error


async def until_served(proxy: RunningProxy) -> None:
    async with asyncio.timeout(20):
        while (await ask(proxy, **LONG)).status_code == 503:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_half_sent_bodies_are_bounded_together(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(TOGETHER)
    upstream.always(lambda _: text_stream("Hi"))
    waiting = [await proxy.raw(half_sent(CHAT, 6_000)) for _ in range(2)]
    async with asyncio.timeout(20):
        while (await ask(proxy, **LONG)).status_code == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # theirs are on the way
    await refused(proxy)
    assert (await ask(proxy)).status_code == 200  # a short one still finds room
    assert b" 503 " in await raw_answer(proxy, half_sent(CHAT, 6_000))
    for _, writer in waiting:
        writer.close()
    await until_served(proxy)


async def test_a_body_counts_until_its_request_ends(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({**TOGETHER, f"{BUDGET}.policy": "hard_stop"})
    go_on = asyncio.Event()
    held = Reply.sse(Wait(go_on), *text_stream("Hi").pieces)
    upstream.will(held, Reply.json({"data": []}), held)
    first = asyncio.create_task(ask(proxy, **LONG))
    await upstream.next_call()
    response = await proxy.client.post(EMBEDDINGS, json=LONG)
    assert response.status_code == 200  # and what was held of it is free again
    second = asyncio.create_task(ask(proxy, stream=True, **LONG))
    await upstream.next_call()
    await upstream.next_call()
    await refused(proxy)
    await refused(proxy, EMBEDDINGS)
    go_on.set()
    assert (await first).status_code == 200
    await second
    upstream.always(lambda _: text_stream("Hi"))
    await until_served(proxy)
