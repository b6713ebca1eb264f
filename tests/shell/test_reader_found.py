"""Odd clients at odd moments: slow readers, busy loops, headers and bodies nobody would send."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from pydantic import ValidationError

from app.api import incoming
from app.core import client_request
from app.core.chunks import made
from app.core.completion import CompletionBuilder
from app.core.gate import Gate
from app.settings import ServerSettings, UpstreamSettings
from tests.shell.asking import (
    CHAT,
    KEEP_ALIVE,
    ask,
    body,
    checked_error,
    checked_error_body,
    payloads,
    text_of,
)
from tests.shell.conftest import StartProxy
from tests.support.ports import free_port
from tests.support.replies import (
    DONE,
    TOOLS,
    chunk,
    completion,
    data,
    long_text,
    text_chunks,
    text_stream,
    with_role,
)
from tests.support.running_proxy import RunningProxy, proxy_config, running_proxy
from tests.support.scripted_server import SILENCE, Call, Delay, Reply, ScriptedServer

JSON = (("content-type", "application/json"),)
ROLE, TEXT, END = (data(one) for one in text_chunks("Half an answer"))
# More than the sockets between take; a comment is no work but to pass it on.
MUCH = b": " + b"x" * 9_000_000 + b"\n\n"
BAD_CALL = with_role(
    {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "nope", "arguments": "{}"}}]},
    finish="tool_calls",
)


def post(payload: Any, path: str = CHAT) -> bytes:
    content = json.dumps(payload).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(content) + content


async def slow_client(proxy: RunningProxy, request: bytes) -> socket.socket:
    """A connection of which nothing is read yet, and which takes little unread."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", proxy.port))
    await loop.sock_sendall(client, request)
    return client


async def read_all(client: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    received = bytearray()
    async with asyncio.timeout(20):
        while not received.endswith(b"\r\n0\r\n\r\n"):
            data = await loop.sock_recv(client, 1 << 20)
            assert data, f"cut off after {bytes(received[-80:])!r}"
            received += data
    return bytes(received)


async def test_a_reply_that_ends_while_a_keep_alive_waits_for_a_slow_reader_is_whole(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"stream.keepalive_seconds": 0.2})
    upstream.will(Reply.sse(ROLE, TEXT, MUCH, Delay(1), END, DONE))
    client = await slow_client(proxy, post(body(stream=True)))
    call = await upstream.next_call()
    async with asyncio.timeout(20):
        await call.answered.wait()
    await asyncio.sleep(0.3)
    received = await read_all(client)
    client.close()
    assert KEEP_ALIVE in received
    assert b'"finish_reason": "stop"' in received[-400:]
    assert DONE in received[-40:]


async def test_a_client_that_never_reads_gives_its_place_back_in_the_end(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    limits = {"max_concurrency": 1, "total_timeout": 1}
    proxy = await start_proxy({f"tiers.fast.{key}": value for key, value in limits.items()})
    long = data(chunk({"content": long_text(500_000)}))
    upstream.will(Reply.sse(ROLE, *[long] * 40, SILENCE), text_stream("next"))
    client = await slow_client(proxy, post(body(stream=True)))
    stuck = await upstream.next_call()
    async with asyncio.timeout(10):
        assert (await ask(proxy)).status_code == 200
    assert stuck.gone.is_set()
    client.close()


async def test_held_text_goes_out_before_what_came_after_it(start_proxy: StartProxy) -> None:
    """The time to let text go is reached in the very moment in which the next text comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_two_words, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with running_proxy(url, {"stream.hold_seconds": 0.5}) as proxy:
            asyncio.get_running_loop().call_later(0.3, time.sleep, 0.7)
            response = await ask(proxy, stream=True, tools=TOOLS)
    assert text_of(response.content) == "one two three"


def _two_words(listener: socket.socket) -> None:
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: "
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            if b"/v1/models" in connection.recv(65536)[:40]:
                connection.sendall(head + b'application/json\r\n\r\n{"data": [{"id": "fast"}]}')
                continue
            connection.sendall(head + b"text/event-stream\r\n\r\n" + ROLE)
            connection.sendall(data(chunk({"content": "one "})))
            time.sleep(0.6)
            connection.sendall(data(chunk({"content": "two "})))
            time.sleep(0.8)
            connection.sendall(data(chunk({"content": "three"})) + END + DONE)


def test_text_that_time_does_not_release_is_not_waited_for_again() -> None:
    class Nothing:
        def feed(self, delta: str) -> str:
            return ""

    gate = Gate(hold_seconds=1, text_hold=Nothing())
    assert gate.push(made(chunk({"content": "<tool_call>"})), 0) == []
    assert gate.next_release() == 1
    assert gate.tick(1) == []
    assert gate.next_release() is None


async def test_a_retry_closes_the_response_of_the_attempt_before(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"reliability.tool_validation.max_retries": 1})
    first = [data(one) for one in BAD_CALL]
    upstream.will(Reply.sse(*first, DONE, SILENCE), Reply.sse(ROLE, TEXT, SILENCE))
    asking = asyncio.create_task(ask(proxy, tools=TOOLS))
    assert await (await upstream.next_call()).left_within(3)
    asking.cancel()


@pytest.mark.parametrize("origin", ["http://[x", "http://[::1", "http://[:::1]"])
async def test_an_origin_that_is_no_url_is_a_foreign_one(origin: str, proxy: RunningProxy) -> None:
    checked_error(await ask(proxy, {"Origin": origin}), 403, "invalid_request_error")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", ["a\r\nset-cookie: b=c", "a\0b", "m" * 512, "mödel €"])
async def test_any_model_name_can_be_answered(
    model: str, streamed: bool, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"reliability.escalation.unknown_models": "passthrough"})
    upstream.will(text_stream("fine"))
    response = await ask(proxy, model=model, stream=streamed)
    assert response.status_code == 200
    assert "set-cookie" not in response.headers
    assert len(response.headers["x-mlx-stack-tier"]) <= 512
    assert (await upstream.next_call()).json()["model"] == model


def test_an_empty_key_is_none() -> None:
    """As from a template whose variable is not set: it would let in whoever sends no key."""
    with pytest.raises(ValidationError, match=r"api_keys\.0"):
        ServerSettings(api_keys=("",))


@pytest.mark.parametrize("url", ["http://[::1", "http://h:abc", "http://h:99999", "http://a b"])
def test_an_address_that_is_none_stops_the_start(url: str) -> None:
    with pytest.raises(ValidationError, match="must be a URL such as"):
        UpstreamSettings(base_url=url)


async def test_models_are_not_listed_with_our_key_where_others_can_ask(
    upstream: ScriptedServer, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-ours")
    proxy = await start_proxy({"server.host": "0.0.0.0"})
    asked: list[str | None] = []
    own_reply = upstream.own_reply

    def noted(call: Call) -> Reply | None:
        asked.append(call.header("authorization"))
        return own_reply(call)

    monkeypatch.setattr(upstream, "own_reply", noted)
    await proxy.client.get("/v1/models")
    await proxy.client.get("/v1/models/fast", headers={"Authorization": "Bearer sk-theirs"})
    assert asked == [None, "Bearer sk-theirs"]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/fast"])
async def test_a_list_of_models_that_is_none_is_an_error(
    path: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.routes["GET", "/v1/models"] = Reply.json(b"<html>")
    checked_error(await proxy.client.get(path), 502, "all_tiers_failed")
    upstream.routes["GET", "/v1/models"] = Reply.json(b"<html>", status=502)
    assert (await proxy.client.get(path)).status_code == 502


def test_an_empty_id_in_a_later_piece_is_no_id() -> None:
    builder = CompletionBuilder()
    whole = {"index": 0, "id": "call_1", "type": "function"}
    function = {"name": "look", "arguments": '{"a":'}
    builder.add(chunk({"tool_calls": [{**whole, "function": function}]}))
    more = {"index": 0, "id": "", "type": "", "function": {"name": "", "arguments": "1}"}}
    builder.add(chunk({"tool_calls": [more]}, "tool_calls"))
    [call] = builder.build()["choices"][0]["message"]["tool_calls"]
    function = {"name": "look", "arguments": '{"a":1}'}
    assert call == {"id": "call_1", "type": "function", "function": function}


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_client_leaves_a_passed_through_path_before_any_answer(
    method: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(Reply.raw(SILENCE))
    request = post({"prompt": "x"}, "/v1/completions")
    if method == "GET":
        request = b"GET /v1/files HTTP/1.1\r\nhost: localhost\r\n\r\n"
    _, writer = await proxy.raw(request)
    call = await upstream.next_call()
    await asyncio.sleep(0.05)
    writer.close()
    assert await call.left_within(1)


async def test_a_client_that_leaves_within_an_upload_is_no_fault_of_ours(
    upstream: ScriptedServer, proxy: RunningProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.always(text_stream())
    _, writer = await proxy.raw(post({"file": "x" * 100}, "/v1/files")[:-20])
    call = await upstream.next_call()
    writer.close()
    assert await call.left_within(1)
    await asyncio.sleep(0.05)
    assert "internal_error" not in capsys.readouterr().err


class Command:
    """``serve`` as a process whose log goes to a pipe that nobody has to read."""

    def __init__(self, upstream: ScriptedServer, folder: Path, grace: float) -> None:
        self.port = free_port()
        changes = {"server.port": self.port, "server.shutdown_grace_seconds": grace}
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(proxy_config(upstream.url, changes)))

    async def start(self, log: int) -> asyncio.subprocess.Process:
        command = (sys.executable, "-m", "app", "serve", "--config", str(self.config))
        process = await asyncio.create_subprocess_exec(*command, stderr=log)
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    return process


async def test_a_signal_within_a_log_line_ends_it_too(
    upstream: ScriptedServer, tmp_path: Path
) -> None:
    upstream.always(text_stream("x"))
    command = Command(upstream, tmp_path, grace=30)
    reading, writing = os.pipe()
    process = await command.start(writing)
    os.close(writing)
    try:
        url = f"http://127.0.0.1:{command.port}{CHAT}"
        async with httpx.AsyncClient(trust_env=False, timeout=1) as client:
            with pytest.raises(httpx.ReadTimeout):  # the pipe is full: a line waits to be written
                while True:
                    await client.post(url, json=body())
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.1)
        drained = asyncio.to_thread(
            lambda: [None for _ in iter(lambda: os.read(reading, 65536), b"")]
        )
        async with asyncio.timeout(10):
            await asyncio.gather(drained, process.wait())
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(reading)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("pieces", [(), (ROLE, TEXT)], ids=["nothing", "text"])
async def test_who_is_cut_off_by_the_end_is_told(
    pieces: tuple[bytes, ...], streamed: bool, upstream: ScriptedServer, tmp_path: Path
) -> None:
    upstream.will(Reply.sse(*pieces, SILENCE))
    process = await Command(upstream, tmp_path, grace=0.5).start(asyncio.subprocess.DEVNULL)
    port = yaml.safe_load((tmp_path / "config.yaml").read_text())["server"]["port"]
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            url = f"http://127.0.0.1:{port}{CHAT}"
            asking = asyncio.create_task(client.post(url, json=body(stream=streamed)))
            await upstream.next_call()
            await asyncio.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            response = await asking
        if streamed and pieces:
            *_, error, done = payloads(response.content)
            assert done == "[DONE]"
            checked_error_body(error, "upstream_unavailable")
        else:
            checked_error(response, 503, "upstream_unavailable")
        async with asyncio.timeout(10):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def raw_answer(proxy: RunningProxy, *pieces: bytes) -> bytes:
    """What comes back on a connection to which these bytes were written, until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()
    except ConnectionResetError:  # closed with unread bytes of ours: also an end
        return b""
    finally:
        writer.close()


async def test_headers_are_bounded_before_they_have_all_come(proxy: RunningProxy) -> None:
    line = b"x-filler: " + b"a" * 16_000 + b"\r\n"
    pieces = [line] * 64
    answer = await raw_answer(proxy, b"POST /v1/chat/completions HTTP/1.1\r\n", *pieces)
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")


async def test_what_is_no_http_gets_the_error_body_too(proxy: RunningProxy) -> None:
    answer = await raw_answer(proxy, b"HELLO\r\n\r\n")
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    checked_error_body(json.loads(content), "invalid_request_error")


async def test_a_body_that_trickles_is_given_up(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "BODY_SECONDS", 0.2)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n"
    answer = await raw_answer_head(proxy, head + b"content-type: application/json\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")


async def raw_answer_head(proxy: RunningProxy, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(request)
    try:
        return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()


async def test_models_answers_head(proxy: RunningProxy) -> None:
    response = await proxy.client.head("/v1/models")
    assert (response.status_code, response.content) == (200, b"")


async def test_too_many_messages_are_refused(
    proxy: RunningProxy, upstream: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_request, "MAX_MESSAGES", 3)
    message = {"role": "user", "content": "hi"}
    error = checked_error(await ask(proxy, messages=[message] * 4), 400, "invalid_request_error")
    assert error["param"] == "messages"
    assert not upstream.calls


async def test_a_large_body_arrives_whole(proxy: RunningProxy, upstream: ScriptedServer) -> None:
    upstream.will(text_stream("Read."))
    text = "long " * 500_000
    response = await ask(proxy, messages=[{"role": "user", "content": text}])
    assert response.status_code == 200
    assert (await upstream.next_call()).json()["messages"][0]["content"] == text


@pytest.mark.parametrize("off", ["disabled", "bypassed"])
async def test_a_limit_is_sent_without_the_budget_stage_too(
    off: str, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """mlx-lm's own limit is 512 tokens."""
    disabled = {"reliability.token_budget.enabled": False}
    proxy = await start_proxy(disabled if off == "disabled" else {"server.allow_bypass": True})
    upstream.always(text_stream("Hello"))
    headers = {} if off == "disabled" else {"X-MLX-Stack-Bypass": "budget"}
    await ask(proxy, headers)
    assert (await upstream.next_call()).json()["max_tokens"] == 16_384
    await ask(proxy, headers, max_completion_tokens=7)
    second = (await upstream.next_call()).json()
    assert (second.get("max_tokens"), second["max_completion_tokens"]) == (None, 7)


async def test_an_answer_asked_for_whole_has_no_first_token_to_wait_for(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    tier = {"first_token_timeout": 0.1, "tool_silence_timeout": 0.1, "total_timeout": 30}
    proxy = await start_proxy(
        {"upstream.stream": "as_requested", **{f"tiers.fast.{k}": v for k, v in tier.items()}}
    )
    upstream.will(
        Reply(200, JSON, (Delay(0.5), json.dumps(completion({"content": "Hi"})).encode()))
    )
    response = await ask(proxy)
    assert response.json()["choices"][0]["message"]["content"] == "Hi"
