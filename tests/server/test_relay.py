"""A stream that is well goes through as the bytes that came, whatever they were cut into.

Each kind of reply and each way of framing it: tests/engine/test_attempt.py.
"""

from __future__ import annotations

import asyncio

from tests.server.asking import (
    CHAT,
    KEEP_ALIVE,
    WITH_USAGE,
    ask,
    body,
    frames,
    text_of,
    without_notes,
)
from tests.server.conftest import StartProxy
from tests.support.replies import (
    DONE,
    KINDS,
    TOOLS,
    data,
    stream_bytes,
    text_chunks,
    text_stream,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, Wait


async def test_byte_by_byte(proxy: RunningProxy) -> None:
    whole = stream_bytes(KINDS["tool_calls_split"].chunks)
    whole = whole.replace(b", ", b",\ndata: ", 1)  # an event may have several lines
    proxy.upstream.will(Reply.sse(*(whole[at : at + 1] for at in range(len(whole)))))
    response = await ask(proxy, **WITH_USAGE, tools=TOOLS)
    assert without_notes(response.content) == whole


async def test_streams_without_chunked_encoding(proxy: RunningProxy) -> None:
    whole = stream_bytes(KINDS["text"].chunks)
    head = (("content-type", "text/event-stream"),)
    proxy.upstream.will(Reply(200, head, (whole,), "close"), Reply(200, head, (whole,), "length"))
    for _ in range(2):
        response = await ask(proxy, **WITH_USAGE)
        assert without_notes(response.content) == whole


async def test_text_flows_while_it_is_written(proxy: RunningProxy) -> None:
    go_on = asyncio.Event()
    role, first, second, last = text_chunks("One ", "two.")
    proxy.upstream.will(
        Reply.sse(data(role), data(first), Wait(go_on), data(second), data(last), DONE)
    )
    async with proxy.client.stream("POST", CHAT, json=body(stream=True)) as response:
        seen = b""
        async for piece in response.aiter_raw():
            seen += piece
            if b"One " in seen and not go_on.is_set():
                assert b"two." not in seen
                go_on.set()
    assert text_of(seen) == "One two."
    assert frames(seen)[-1] == DONE


async def test_tool_calls_come_together_at_the_end(start_proxy: StartProxy) -> None:
    """Keep-alive comments show that time passes while the calls are held."""
    proxy = await start_proxy({"stream.keepalive_seconds": 0.05})
    kind = KINDS["tool_calls_split"]
    events = [data(one) for one in kind.chunks]
    go_on = asyncio.Event()
    proxy.upstream.will(Reply.sse(*events[:-1], Wait(go_on), events[-1], DONE))
    asked = body(stream=True, tools=TOOLS)
    seen = b""
    async with proxy.client.stream("POST", CHAT, json=asked) as response:
        async for piece in response.aiter_raw():
            seen += piece
            if seen.count(KEEP_ALIVE) >= 3 and not go_on.is_set():
                assert b"tool_calls" not in seen
                go_on.set()
    whole = stream_bytes(kind.chunks, usage=False)
    assert without_notes(seen.replace(KEEP_ALIVE, b"")) == whole


async def test_buffered_sends_nothing_before_the_whole_is_there(proxy: RunningProxy) -> None:
    """Proved by its failing late: a live stream would have had to begin with status 200."""
    role, text, _ = text_chunks("Half a")
    proxy.upstream.will(Reply.sse(data(role), data(text), data({"error": {"message": "gone"}})))
    response = await ask(proxy, {"X-MLX-Stack-Stream": "buffered"}, stream=True)
    assert response.status_code == 502
    proxy.upstream.will(KINDS["text"].stream())
    response = await ask(proxy, {"X-MLX-Stack-Stream": "buffered"}, **WITH_USAGE)
    assert without_notes(response.content) == stream_bytes(KINDS["text"].chunks)


# What is asked of upstream


async def test_upstream_is_asked_for_a_stream_with_usage_and_all_else_as_it_came(
    proxy: RunningProxy,
) -> None:
    proxy.upstream.always(text_stream("Hi", "."))
    request = body(
        tools=TOOLS, temperature=0.3, seed=7, metadata={"run": "1"}, new_thing={"deep": [1, None]}
    )
    request["messages"] = [
        {"role": "system", "content": "Be kind.", "name": "sys"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}], "odd": True},
    ]
    await ask(proxy, **request)
    response = await ask(proxy, stream=True)
    # The client did not ask for the usage that it is for.
    expected = stream_bytes(text_chunks("Hi", "."), usage=False)
    assert without_notes(response.content) == expected
    for call in proxy.upstream.calls:
        assert call.json()["stream"] is True
        assert call.json()["stream_options"] == {"include_usage": True}
    sent = proxy.upstream.calls[0].json()
    assert {key: sent[key] for key in request} == request


async def test_as_requested_asks_for_what_the_client_asked(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"upstream.stream": "as_requested"})
    proxy.upstream.will(Reply.json(KINDS["text"].completion))
    response = await ask(proxy)
    assert response.json() == KINDS["text"].completion
    assert not proxy.upstream.calls[0].json().get("stream")
    assert "stream_options" not in proxy.upstream.calls[0].json()
