"""Every other path under /v1/ goes through untouched, in both directions."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import httpx
import pytest

from tests.server.asking import checked_error
from tests.server.conftest import StartProxy
from tests.support.ports import free_port
from tests.support.replies import litellm_error
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import CLOSE, RESET, Reply, Wait
from tests.support.waiting import until

OK = Reply.json({"ok": True})
BINARY = bytes(range(256)) * 40


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE", "OPTIONS"])
async def test_any_method(method: str, proxy: RunningProxy) -> None:
    proxy.upstream.will(OK)
    content = BINARY if method == "PATCH" else None
    target = "/v1/vector_stores/vs:1/files@2?purpose=a%20b&x=1&x=2&q=%C3%A9+%26"
    response = await proxy.client.request(method, target, content=content)
    assert response.status_code == 200
    assert response.content == OK.pieces[0]
    assert response.headers["x-mlx-stack-mode"] == "passthrough"
    assert (proxy.upstream.calls[0].method, proxy.upstream.calls[0].target) == (method, target)
    assert bytes(proxy.upstream.calls[0].body) == (content or b"")


@pytest.mark.parametrize(("path", "status"), [("/v1/embeddings", 200), ("/v1/rerank", 502)])
async def test_embeddings_survive_a_connection_that_closes_instead_of_an_answer(
    path: str, status: int, proxy: RunningProxy
) -> None:
    proxy.upstream.will(OK, Reply.raw(CLOSE), OK)
    body = {"model": "m", "input": "x"}
    assert (await proxy.client.post(path, json=body)).status_code == 200
    assert (await proxy.client.post(path, json=body)).status_code == status


async def test_answers_without_a_body(proxy: RunningProxy) -> None:
    proxy.upstream.will(
        Reply.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 123\r\n\r\n"),
        Reply.raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
        Reply(307, (("location", "/v1/elsewhere"),)),
    )
    response = await proxy.client.head("/v1/files/abc")
    assert (response.headers["content-length"], response.content) == ("123", b"")
    assert (await proxy.client.delete("/v1/files/1")).status_code == 204
    response = await proxy.client.get("/v1/files/1")
    assert response.status_code == 307
    assert response.headers["location"] == "/v1/elsewhere"


async def test_a_path_that_two_servers_may_read_differently_is_refused(proxy: RunningProxy) -> None:
    """Which: tests/engine/test_passthrough_paths.py."""
    checked_error(await proxy.client.get("/v1/files/a%2Fb"), 400, "invalid_request_error")
    assert proxy.upstream.calls == []


async def test_headers_both_ways(proxy: RunningProxy) -> None:
    """Which: tests/engine/test_headers.py."""
    said = (("openai-organization", "org"), ("set-cookie", "token=1"), ("x-hop", "1"))
    date = ("date", "Thu, 01 Jan 1970 00:00:00 GMT")
    proxy.upstream.will(OK.with_headers(*said, date, ("connection", "x-hop")))
    hop = {"Connection": "keep-alive, X-Secret-Hop", "X-Secret-Hop": "1"}
    response = await proxy.client.get("/v1/files", headers={"OpenAI-Beta": "v2", **hop})
    call = proxy.upstream.calls[0]
    assert call.header("openai-beta") == "v2"
    assert call.header("host") == f"127.0.0.1:{proxy.upstream.port}"
    assert call.header("x-secret-hop") is None
    assert response.headers["openai-organization"] == "org"
    assert len(response.headers.get_list("date")) == 1
    assert not {"set-cookie", "x-hop"} & set(response.headers)


async def test_a_download_flows_while_it_comes(proxy: RunningProxy) -> None:
    go_on = asyncio.Event()
    events = (b"event: response.created\ndata: {}\n\n", b"data: [DONE]\n\n")
    proxy.upstream.will(Reply.sse(events[0], Wait(go_on), events[1]))
    seen = b""
    async with proxy.client.stream("POST", "/v1/completions", json={"prompt": "x"}) as response:
        async for piece in response.aiter_raw():
            seen += piece
            if seen == events[0]:
                go_on.set()
    assert seen == b"".join(events)


async def test_audio_and_compressed_bodies_are_not_touched(proxy: RunningProxy) -> None:
    speech = Reply(200, (("content-type", "audio/mpeg"),), (BINARY,), "chunked")
    packed = gzip.compress(b'{"ok": true}')
    head = (("content-type", "application/json"), ("content-encoding", "gzip"))
    proxy.upstream.will(speech, Reply(200, head, (packed,)))
    response = await proxy.client.post("/v1/audio/speech", json={"input": "hi"})
    assert response.content == BINARY
    assert response.headers["content-type"] == "audio/mpeg"
    async with proxy.client.stream("GET", "/v1/files") as response:
        assert b"".join([piece async for piece in response.aiter_raw()]) == packed
        assert response.headers["content-encoding"] == "gzip"


async def test_upstreams_errors_as_they_are(proxy: RunningProxy) -> None:
    reply = litellm_error(429, "as it is", retry_after="7")
    proxy.upstream.will(reply)
    response = await proxy.client.get("/v1/batches")
    assert (response.status_code, response.content) == (429, reply.pieces[0])
    assert response.headers["retry-after"] == "7"
    assert len(proxy.upstream.calls) == 1


async def test_with_litellm_down_only_the_process_is_well(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(url=f"http://127.0.0.1:{free_port()}")
    assert (await proxy.client.get("/health")).status_code == 200
    assert (await proxy.client.get("/ready")).status_code == 503
    for path in ("/v1/files", "/v1/models"):
        checked_error(await proxy.client.get(path), 503, "upstream_unavailable")


async def test_a_large_upload_and_download(proxy: RunningProxy) -> None:
    big = BINARY * 300  # 3 MB
    proxy.upstream.will(Reply(200, (("content-type", "application/octet-stream"),), (big,)))
    response = await proxy.client.post("/v1/files", content=big)
    assert response.content == big
    assert bytes(proxy.upstream.calls[0].body) == big


@pytest.mark.parametrize("method", ["POST", "GET", "HEAD"])
async def test_one_request_after_another_on_one_connection(
    method: str, start_proxy: StartProxy, tmp_path: Path
) -> None:
    """Whoever has a whole reply may ask again at once: to us, too, it is over then."""
    state = {"state.backend": "sqlite", "state.path": str(tmp_path / "state.db")}
    proxy = await start_proxy(state)
    whole = Reply.json({"usage": {"prompt_tokens": 5, "total_tokens": 5}})
    empty = Reply.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n")
    proxy.upstream.always(empty if method == "HEAD" else whole)
    body = b'{"input": "x", "model": "e"}' if method == "POST" else b""
    ask = (
        f"{method} /v1/embeddings HTTP/1.1\r\nhost: 127.0.0.1:{proxy.port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    reader, writer = await proxy.raw(b"")
    async with asyncio.timeout(20):
        for _ in range(10):
            writer.write(ask)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            if method != "HEAD":
                await reader.readexactly(length)
    writer.close()
    assert len(proxy.upstream.calls) == 10


async def test_a_client_that_leaves_an_upload_that_nobody_takes_is_noticed(
    start_proxy: StartProxy,
) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        asked.set()
        await left.wait()
        writer.close()

    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024)
    port = server.sockets[0].getsockname()[1]
    proxy = await start_proxy({"upstream.base_url": f"http://127.0.0.1:{port}"})
    head = (
        f"POST /v1/files HTTP/1.1\r\nhost: 127.0.0.1:{proxy.port}\r\ncontent-length: 30000000\r\n"
    )
    _, writer = await proxy.raw(f"{head}\r\n".encode())
    writer.write(b"x" * 30_000_000)
    await asked.wait()
    writer.transport.abort()
    await until(lambda: not proxy.services.life.running)
    left.set()
    server.close()


async def test_an_answer_that_breaks_off_is_no_fault_of_ours(
    proxy: RunningProxy, capfd: pytest.CaptureFixture[str]
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
    proxy.upstream.will(Reply.raw(head, b'{"data": [', RESET))
    with pytest.raises(httpx.RemoteProtocolError):
        await proxy.client.post("/v1/embeddings", json={"model": "e", "input": "x"})
    said = capfd.readouterr().err
    assert '"level":"error"' not in said
    (line,) = [json.loads(line) for line in said.splitlines() if "upstream_broke_off" in line]
    assert line["level"] == "warning" and line["request_id"].startswith("req_")
