"""A client that leaves stops the model within a second, wherever its request stands."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.asking import KEEP_ALIVE, ask, body
from tests.server.conftest import StartProxy
from tests.server.polling import until_metric
from tests.server.sockets import post, read_all, slow_client
from tests.support.replies import DONE, chunk, data, long_text, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Delay, Reply, Wait
from tests.support.waiting import until

ROLE, TEXT, END = (data(one) for one in text_chunks("Some words"))
# More than the sockets between take; a comment is no work but to pass it on.
MUCH = b": " + b"x" * 9_000_000 + b"\n\n"
SECOND = 1.0  # the contract's own limit


SILENT_REPLIES = {
    "no headers yet": Reply.raw(SILENCE),
    "headers only": Reply.sse(SILENCE),
    "a role only": Reply.sse(ROLE, SILENCE),
    "in the midst of text": Reply.sse(ROLE, TEXT, SILENCE),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_running(streamed: bool, proxy: RunningProxy) -> None:
    for name, reply in SILENT_REPLIES.items():
        proxy.upstream.will(reply)
        reader, writer = await proxy.raw(post(body(stream=streamed)))
        call = await proxy.upstream.next_call()
        if streamed and name == "in the midst of text":
            async with asyncio.timeout(10):
                await reader.readuntil(b"Some words")
        writer.close()
        assert await call.left_within(SECOND), name
        await until_metric(proxy, "mlx_stack_in_flight", 0, tier="fast")


@pytest.mark.parametrize("together", [True, False], ids=["in one write", "later"])
async def test_with_another_request_already_sent(together: bool, proxy: RunningProxy) -> None:
    proxy.upstream.will(Reply.sse(ROLE, TEXT, SILENCE))
    one = post(body(stream=True))
    _, writer = await proxy.raw(one + one if together else one)
    call = await proxy.upstream.next_call()
    if not together:
        writer.write(one)
        await writer.drain()
    writer.close()
    assert await call.left_within(SECOND)
    assert len(proxy.upstream.calls) == 1


async def test_a_pipelined_request_is_not_taken(proxy: RunningProxy) -> None:
    """The reply before it is whole, and nobody waits for one to it: the connection closes."""
    proxy.upstream.will(text_stream("first"), text_stream("second"))
    reader, _ = await proxy.raw(post(body()) + post(body()))
    async with asyncio.timeout(10):
        answer = await reader.read()
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert b"first" in answer
    assert len(proxy.upstream.calls) == 1


async def test_a_client_that_does_not_read_holds_the_upstream_back(proxy: RunningProxy) -> None:
    """Else a slow reader would fill our memory: what it doesn't take is not taken from upstream."""
    held_back = asyncio.Event()
    piece = data(text_chunks(long_text(10_000))[1])

    async def flood() -> None:
        connection = next(one for one in proxy.upstream.connections if one.call is call)
        for _ in range(20_000):  # 200 MB if nobody held it back
            connection.send(piece, "chunked")
            if not connection.writable.is_set():
                held_back.set()
                await connection.writable.wait()
            await asyncio.sleep(0)

    proxy.upstream.will(Reply.sse(ROLE, flood))
    reader, writer = await proxy.raw(post(body(stream=True)))
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    call = await proxy.upstream.next_call()
    async with asyncio.timeout(20):
        await held_back.wait()
    writer.transport.abort()
    assert await call.left_within(SECOND)


async def test_in_the_queue(start_proxy: StartProxy) -> None:
    """The one who leaves is never sent upstream, and the one behind gets its place."""
    proxy = await start_proxy({"tiers.fast.max_concurrency": 1})
    go_on = asyncio.Event()
    proxy.upstream.will(Reply.sse(ROLE, Wait(go_on), TEXT, END), text_stream("third"))
    first = asyncio.create_task(ask(proxy, {"X-MLX-Stack-Session": "first-one"}))
    await proxy.upstream.next_call()
    _, leaving = await proxy.raw(post(body(user="second")))
    await until_metric(proxy, "mlx_stack_queue_depth", 1, tier="fast")
    third = asyncio.create_task(ask(proxy, {"X-MLX-Stack-Session": "third-one"}, user="third"))
    await until_metric(proxy, "mlx_stack_queue_depth", 2, tier="fast")
    leaving.close()
    await until_metric(proxy, "mlx_stack_queue_depth", 1, tier="fast")
    go_on.set()
    assert (await first).status_code == 200
    assert (await third).json()["choices"][0]["message"]["content"] == "third"
    assert [call.json().get("user") for call in proxy.upstream.calls] == [None, "third"]
    await until_metric(proxy, "mlx_stack_queue_depth", 0, tier="fast")
    await until_metric(proxy, "mlx_stack_in_flight", 0, tier="fast")


async def test_a_reply_that_ends_while_a_keep_alive_waits_for_a_slow_reader_is_whole(
    start_proxy: StartProxy,
) -> None:
    """On a busy machine the text is still on its way when the first keep-alive would be due."""
    proxy = await start_proxy({"stream.keepalive_seconds": 0.2})
    for seconds in (1, 2, 4, 8):
        proxy.upstream.will(Reply.sse(ROLE, TEXT, MUCH, Delay(seconds), END, DONE))
        client = await slow_client(proxy, post(body(stream=True)))
        call = await proxy.upstream.next_call()
        async with asyncio.timeout(20):
            await call.answered.wait()
        received = await read_all(client)
        client.close()
        assert b'"finish_reason": "stop"' in received[-400:]
        assert DONE in received[-40:]
        if KEEP_ALIVE in received:
            return
    raise AssertionError("no keep-alive was sent")


async def test_a_client_that_never_reads_gives_its_place_back_in_the_end(
    start_proxy: StartProxy,
) -> None:
    limits = {"max_concurrency": 1, "total_timeout": 1}
    proxy = await start_proxy({f"tiers.fast.{key}": value for key, value in limits.items()})
    long = data(chunk({"content": long_text(500_000)}))
    proxy.upstream.will(Reply.sse(ROLE, *[long] * 40, SILENCE), text_stream("next"))
    client = await slow_client(proxy, post(body(stream=True)))
    stuck = await proxy.upstream.next_call()
    async with asyncio.timeout(10):
        assert (await ask(proxy)).status_code == 200
    assert stuck.gone.is_set()
    client.close()


async def test_a_client_leaves_a_path_that_passes_through(proxy: RunningProxy) -> None:
    asked = b"GET /v1/files HTTP/1.1\r\nhost: localhost\r\n\r\n"
    for sent in (asked, post({"prompt": "x"}, "/v1/completions")):
        for reply in (Reply.raw(SILENCE), Reply.sse(b"data: 1\n\n", SILENCE)):
            proxy.upstream.will(reply)
            _, writer = await proxy.raw(sent)
            call = await proxy.upstream.next_call()
            writer.close()
            assert await call.left_within(SECOND)


async def test_a_client_that_leaves_within_an_upload_is_no_fault_of_ours(
    proxy: RunningProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    _, writer = await proxy.raw(post({"file": "x" * 100}, "/v1/files")[:-20])
    await until(lambda: proxy.services.life.running == 1)
    writer.close()
    await until(lambda: proxy.services.life.running == 0)
    assert "internal_error" not in capsys.readouterr().err
    assert proxy.upstream.calls == []
