"""A stream that is well goes through as the bytes that came, whatever they were cut into."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.server.asking import (
    CHAT,
    KEEP_ALIVE,
    WITH_USAGE,
    ask,
    body,
    frames,
    payloads,
    text_of,
    without_notes,
)
from tests.server.conftest import StartProxy
from tests.support import replies
from tests.support.replies import (
    DONE,
    KINDS,
    chunk,
    data,
    stream_bytes,
    text_chunks,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait


@pytest.mark.parametrize("name", KINDS)
async def test_every_kind_comes_out_as_it_came_in(
    name: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    kind = KINDS[name]
    upstream.will(kind.stream())
    response = await ask(proxy, **WITH_USAGE, **(kind.request or {}))
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert without_notes(response.content) == stream_bytes(kind.chunks)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("seed", range(3))
async def test_any_split_of_the_bytes_gives_the_same_stream(
    seed: int, end: bytes, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    whole = stream_bytes(KINDS["text"].chunks, end=end)
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(1, len(whole)), k=rng.randint(1, 60)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    upstream.will(Reply.sse(*pieces))
    response = await ask(proxy, **WITH_USAGE)
    assert without_notes(response.content) == whole


async def test_byte_by_byte(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    whole = stream_bytes(KINDS["tool_calls_split"].chunks)
    upstream.will(Reply.sse(*(whole[at : at + 1] for at in range(len(whole)))))
    response = await ask(proxy, **WITH_USAGE, tools=replies.TOOLS)
    assert without_notes(response.content) == whole


async def test_comments_event_names_and_several_data_lines_are_kept(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    first, *rest = text_chunks("a", "b")
    split = data({**replies.usage_chunk(), "usage": None}).replace(b", ", b",\ndata: ", 1)
    whole = (
        b": keepalive 1/7\n\n"
        + b"event: message\nid: 7\n"
        + data(first)
        + b":\n\n"
        + split
        + b"".join(data(one) for one in rest)
        + b"retry: 3000\n\n"
        + data(replies.usage_chunk())
        + DONE
    )
    upstream.will(Reply.sse(whole))
    response = await ask(proxy, **WITH_USAGE)
    assert without_notes(response.content) == whole


@pytest.mark.parametrize("framing", ["close", "length"])
async def test_streams_without_chunked_encoding(
    framing: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    whole = stream_bytes(KINDS["text"].chunks)
    head = (("content-type", "text/event-stream"),)
    upstream.will(Reply(200, head, (whole,), framing))  # type: ignore[arg-type]
    response = await ask(proxy, **WITH_USAGE)
    assert without_notes(response.content) == whole


# All of a text is searched for loops: ten megabytes of it take seconds, and show nothing that one
# doesn't.
@pytest.mark.parametrize(("megabytes", "searched"), [(1, True), (10, False)])
async def test_a_chunk_of_megabytes(
    megabytes: int, searched: bool, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    search = {"reliability.loop_detection.generation.enabled": searched}
    proxy = await start_proxy({**search, "stream.keepalive_seconds": 100})
    big = replies.long_text(megabytes * 1_000_000)
    chunks = text_chunks(big)
    upstream.always(lambda _: Reply.sse(stream_bytes(chunks)))
    response = await ask(proxy, **WITH_USAGE)
    assert without_notes(response.content) == stream_bytes(chunks)
    response = await ask(proxy)
    assert response.json()["choices"][0]["message"]["content"] == big


async def test_usage_is_stripped_where_the_client_did_not_ask(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(replies.text_stream("Hi", "."))
    response = await ask(proxy, stream=True)
    expected = stream_bytes(text_chunks("Hi", "."), usage=False)
    assert without_notes(response.content) == expected
    assert upstream.calls[0].json()["stream_options"]["include_usage"] is True


async def test_usage_null_beside_choices_or_in_the_last_chunk_is_stripped_too(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    """OpenAI sends `usage: null` on every chunk when asked; some put it on the finish chunk."""
    one, last = chunk({"role": "assistant", "content": "Hi"}), chunk({}, "stop")
    upstream.will(
        Reply.sse(data({**one, "usage": None}), data({**last, "usage": replies.USAGE}), DONE)
    )
    response = await ask(proxy, stream=True)
    found = payloads(without_notes(response.content))
    assert found[-1] == "[DONE]"
    assert [payload["choices"] for payload in found[:-1]] == [one["choices"], last["choices"]]
    assert all(not payload.get("usage") for payload in found[:-1])


async def test_include_usage_false_is_not_asking(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(replies.text_stream("Hi"))
    response = await ask(proxy, stream=True, stream_options={"include_usage": False, "x": 1})
    assert all(not found.get("usage") for found in payloads(response.content) if found != "[DONE]")
    assert upstream.calls[0].json()["stream_options"] == {"include_usage": True, "x": 1}


async def test_text_flows_while_it_is_written(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    go_on = asyncio.Event()
    role, first, second, last = text_chunks("One ", "two.")
    upstream.will(Reply.sse(data(role), data(first), Wait(go_on), data(second), data(last), DONE))
    async with proxy.client.stream("POST", CHAT, json=body(stream=True)) as response:
        seen = b""
        async for piece in response.aiter_raw():
            seen += piece
            if b"One " in seen and not go_on.is_set():
                assert b"two." not in seen
                go_on.set()
    assert text_of(seen) == "One two."
    assert frames(seen)[-1] == DONE


async def test_reasoning_flows_while_it_is_written(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    go_on = asyncio.Event()
    think, answer = chunk({"reasoning_content": "Hm."}), chunk({"content": "Yes."})
    last = data(chunk({}, "stop"))
    upstream.will(Reply.sse(data(think), Wait(go_on), data(answer), last, DONE))
    async with proxy.client.stream("POST", CHAT, json=body(stream=True)) as response:
        async for piece in response.aiter_raw():
            if b"Hm." in piece:
                go_on.set()
    assert go_on.is_set()


async def test_tool_calls_come_together_at_the_end(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Keep-alive comments show that time passes while the calls are held."""
    proxy = await start_proxy({"stream.keepalive_seconds": 0.05})
    kind = KINDS["tool_calls_split"]
    events = [data(one) for one in kind.chunks]
    go_on = asyncio.Event()
    upstream.will(Reply.sse(*events[:-1], Wait(go_on), events[-1], DONE))
    asked = body(stream=True, tools=replies.TOOLS)
    seen = b""
    async with proxy.client.stream("POST", CHAT, json=asked) as response:
        async for piece in response.aiter_raw():
            seen += piece
            if seen.count(KEEP_ALIVE) >= 3 and not go_on.is_set():
                assert b"tool_calls" not in seen
                go_on.set()
    whole = stream_bytes(kind.chunks, usage=False)
    assert without_notes(seen.replace(KEEP_ALIVE, b"")) == whole


async def test_keep_alive_comments_until_the_first_token(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"stream.keepalive_seconds": 0.05})
    go_on = asyncio.Event()
    whole = stream_bytes(KINDS["text"].chunks, usage=False)
    upstream.will(Reply.sse(Wait(go_on), whole))
    seen = b""
    async with proxy.client.stream("POST", CHAT, json=body(stream=True)) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        async for piece in response.aiter_raw():
            seen += piece
            if seen.count(KEEP_ALIVE) >= 2:
                go_on.set()
    assert without_notes(seen.replace(KEEP_ALIVE, b"")) == whole


async def test_buffered_sends_nothing_before_the_whole_is_there(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    """Proved by its failing late: a live stream would have had to begin with status 200."""
    role, text, _ = text_chunks("Half a")
    upstream.will(Reply.sse(data(role), data(text), data({"error": {"message": "gone"}})))
    response = await ask(proxy, {"X-MLX-Stack-Stream": "buffered"}, stream=True)
    assert response.status_code == 502
    upstream.will(KINDS["text"].stream())
    response = await ask(proxy, {"X-MLX-Stack-Stream": "buffered"}, **WITH_USAGE)
    assert without_notes(response.content) == stream_bytes(KINDS["text"].chunks)


async def test_stream_metadata_rides_on_the_last_chunk(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"stream.metadata": True})
    upstream.will(replies.text_stream("Hi"))
    response = await ask(proxy, stream=True)
    *_, last, done = payloads(response.content)
    assert done == "[DONE]"
    assert last["mlx_stack"]["tier"] == "fast"
    assert last["mlx_stack"]["retries"] == 0


async def test_a_json_answer_to_a_streamed_request_becomes_a_stream(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(Reply.json(KINDS["text"].completion))
    response = await ask(proxy, **WITH_USAGE)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert text_of(response.content) == "Héllo wörld 🎉"
    found = payloads(response.content)
    assert found[-1] == "[DONE]"
    assert [one["usage"] for one in found[:-1] if one.get("usage")] == [replies.USAGE]
