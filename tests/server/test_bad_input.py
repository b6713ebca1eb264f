"""Bad input: a 4xx, a sentence that says what is wrong and where, and nothing sent upstream."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mlx_stack_proxy.engine import client_request
from mlx_stack_proxy.server import incoming
from tests.server.asking import (
    CHAT,
    MESSAGES,
    ask,
    ask_raw,
    body,
    checked_error,
    checked_error_body,
)
from tests.server.conftest import StartProxy
from tests.server.counting import BUDGET
from tests.server.sockets import raw_answer, raw_answer_head, request
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, Wait
from tests.support.waiting import until

GOOD = json.dumps(body()).encode()
NESTED = b"[" * 20_000 + b"]" * 20_000
INVALID = "invalid_request_error"


NOT_READABLE = {
    "empty": b"",
    "cut off": GOOD[:-9],
    "two values": GOOD + GOOD,
    "20,000 brackets": GOOD[:-1] + b', "tools": ' + NESTED + b"}",
    "900 braces in a message": GOOD.replace(
        b'"messages": [',
        b'"messages": [{"role":"user","z":' + b'{"a":' * 900 + b"1" + b"}" * 901 + b",",
    ),
}


async def test_a_body_that_is_no_json_object(proxy: RunningProxy) -> None:
    """Further ones: tests/engine/test_client_request.py."""
    for content in NOT_READABLE.values():
        checked_error(await ask_raw(proxy, content), 400, INVALID)
    assert proxy.upstream.calls == []


async def test_a_field_of_the_wrong_type_is_named(proxy: RunningProxy) -> None:
    """Each of them: tests/engine/test_client_request.py."""
    error = checked_error(await ask(proxy, tools={"name": "x"}), 400, INVALID)
    assert error["param"] == "tools"
    assert proxy.upstream.calls == []


async def test_another_content_type_is_told_what_to_add(proxy: RunningProxy) -> None:
    """What a browser page may send without asking, and what curl sends by default."""
    form = "application/x-www-form-urlencoded"
    for content_type in (None, "text/plain", form, "multipart/form-data; boundary=x"):
        error = checked_error(await ask_raw(proxy, GOOD, content_type), 415, INVALID)
        assert "-H" in error["message"]
        assert "Content-Type: application/json" in error["message"]
    assert proxy.upstream.calls == []


async def test_a_body_over_the_limit_is_refused_by_its_length_alone(proxy: RunningProxy) -> None:
    answer = await raw_answer_head(proxy, request(CHAT, b"", "content-length: 999999999999"))
    assert b" 413 " in answer
    assert proxy.upstream.calls == []


@pytest.mark.parametrize("path", [CHAT, "/v1/files"])
async def test_a_chunked_body_over_the_limit_is_cut_off(path: str, start_proxy: StartProxy) -> None:
    """The limit is exact; of an endless body no more is read."""
    proxy = await start_proxy({"server.max_body_bytes": len(GOOD)})
    proxy.upstream.will(text_stream("Hi"))

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 5_000

    headers = {"content-type": "application/json"}
    assert (await proxy.client.post(path, content=GOOD, headers=headers)).status_code == 200
    for content in (GOOD + b" ", endless()):
        response = await proxy.client.post(path, content=content, headers=headers)
        error = checked_error(response, 413, INVALID)
        assert str(len(GOOD)) in error["message"].replace(",", "")
    assert len(proxy.upstream.calls) == 1


ABSURD: dict[str, list[str]] = {
    "two lengths": ["content-length: 5", "content-length: 7"],
    "a negative length": ["content-length: -5"],
    "a length that is no number": ["content-length: many"],
    "a length and chunks": ["content-length: 5", "transfer-encoding: chunked"],
    "a header of 200 kB": ["x-long: " + "a" * 200_000],
    "two tiers": ["x-mlx-stack-tier: fast", "x-mlx-stack-tier: standard"],
    "two content types": ["content-type: application/json", "content-type: text/plain"],
    "a header without a name": [": nothing"],
    "a control character": ["x-odd: a\x00b"],
}


async def test_absurd_headers_are_refused_and_nobody_falls_over(proxy: RunningProxy) -> None:
    """Refused by the HTTP parser or by us; a 4xx or a closed connection, never a 5xx or a wait."""
    for name, lines in ABSURD.items():
        reader, writer = await proxy.raw(request(CHAT, GOOD, *lines))
        async with asyncio.timeout(10):
            first_line = await reader.readline()
        writer.close()
        assert first_line == b"" or first_line.split(b" ")[1].startswith(b"4"), name
    assert proxy.upstream.calls == []
    proxy.upstream.will(text_stream("Still here"))
    assert (await ask(proxy)).status_code == 200


async def test_headers_that_are_read_and_too_many(proxy: RunningProxy) -> None:
    for more in ({"x-long": "a" * 66_000}, {f"x-{n}": "a" for n in range(201)}):
        checked_error(await ask(proxy, more), 431, INVALID)
    assert proxy.upstream.calls == []


async def test_what_no_path_answers(proxy: RunningProxy) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        response = await proxy.client.request(method, CHAT)
        assert response.status_code == 405
        assert "POST" in response.headers["allow"]
    for path in ("/", "/v2/chat/completions", "/key/generate", "/docs", "/redoc"):
        response = await proxy.client.get(path)
        assert response.status_code == 404, path
        assert "error" in response.json(), path
    assert proxy.upstream.calls == []


async def test_a_slash_too_many_is_no_way_past_the_stages(proxy: RunningProxy) -> None:
    proxy.upstream.always(text_stream("Hello"))
    for path in (f"{CHAT}/", "/v1//chat/completions", "//v1/chat/completions", "/chat/completions"):
        url = f"http://127.0.0.1:{proxy.port}{path}"
        response = await proxy.client.post(url, json={"model": "auto", "messages": MESSAGES})
        assert response.status_code == 200
        assert response.headers["x-mlx-stack-tier"] == "fast"
    assert len(proxy.upstream.calls) == 4


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


async def test_too_many_messages_are_refused(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_request, "MAX_MESSAGES", 3)
    message = {"role": "user", "content": "hi"}
    error = checked_error(await ask(proxy, messages=[message] * 4), 400, "invalid_request_error")
    assert error["param"] == "messages"
    assert not proxy.upstream.calls


async def test_only_chunks_are_a_transfer_coding(proxy: RunningProxy) -> None:
    """It was taken as it came: the packed bytes for what they hold."""
    packed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(GOOD), GOOD)
    for path in (CHAT, "/v1/embeddings"):
        for coding in ("gzip, chunked", "gzip,chunked", "identity, chunked"):
            lines = ("connection: close", f"transfer-encoding: {coding}")
            head = request(path, b"", *lines).replace(b"content-length: 0\r\n", b"")
            assert (await raw_answer(proxy, head + packed)).startswith(b"HTTP/1.1 501 ")
    assert proxy.upstream.calls == []


async def test_a_reply_in_another_transfer_coding_is_none(proxy: RunningProxy) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    packed = gzip.compress(b"{}")
    coded = b"transfer-encoding: gzip, chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)
    proxy.upstream.always(lambda _: Reply.raw(head + coded))
    for path in (CHAT, "/v1/embeddings"):
        response = await proxy.client.post(path, json=body())
        checked_error(response, 502, "all_tiers_failed")


# What the bodies of all requests may take together, wherever they are in their lives

LONG = {"messages": [{"role": "user", "content": "x" * 6_000}]}
TOGETHER = {"server.max_body_bytes": 10_000}
EMBEDDINGS = "/v1/embeddings"


def half_sent(path: str, size: int) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % (size + 1) + b"x" * size


async def refused(proxy: RunningProxy, path: str = CHAT) -> Any:
    response = await proxy.client.post(path, json={**body(), **LONG})
    error = checked_error(response, 503, "upstream_unavailable")
    assert "server.max_body_bytes" in error["message"]
    assert response.headers["retry-after"] == "5"
    return error


async def until_served(proxy: RunningProxy, served: bool = True) -> None:
    async def is_served() -> bool:
        return ((await ask(proxy, **LONG)).status_code == 200) is served

    await until(is_served)


@pytest.fixture
def room_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "LARGEST_BODIES", 1.5)


@pytest.mark.usefixtures("room_for_two")
async def test_half_sent_bodies_are_bounded_together(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(TOGETHER)
    proxy.upstream.always(lambda _: text_stream("Hi"))
    waiting = [await proxy.raw(half_sent(CHAT, 6_000)) for _ in range(2)]
    await until_served(proxy, False)  # theirs are on the way
    await refused(proxy)
    assert (await ask(proxy)).status_code == 200  # a short one still finds room
    assert b" 503 " in await raw_answer(proxy, half_sent(CHAT, 6_000))
    for _, writer in waiting:
        writer.close()
    await until_served(proxy)


@pytest.mark.usefixtures("room_for_two")
async def test_what_is_refused_counts_no_longer(start_proxy: StartProxy) -> None:
    """Nor while its client is still sending: the room is free for others at once."""
    proxy = await start_proxy(TOGETHER)
    proxy.upstream.always(lambda _: text_stream("Hi"))
    _, waiting = await proxy.raw(half_sent(CHAT, 8_000))
    whole = half_sent(CHAT, 9_000)
    reader, sending = await proxy.raw(whole[:-4_000])
    await until_served(proxy, False)  # both are on the way
    sending.write(whole[-4_000:])
    assert b" 503 " in await reader.readline()
    assert (await ask(proxy, **LONG)).status_code == 200
    for writer in (waiting, sending):
        writer.close()


@pytest.mark.usefixtures("room_for_two")
async def test_a_body_counts_until_its_request_ends(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({**TOGETHER, f"{BUDGET}.policy": "hard_stop"})
    go_on = asyncio.Event()
    held = Reply.sse(Wait(go_on), *text_stream("Hi").pieces)
    proxy.upstream.will(held, Reply.json({"data": []}), held)
    first = asyncio.create_task(ask(proxy, **LONG))
    await proxy.upstream.next_call()
    response = await proxy.client.post(EMBEDDINGS, json=LONG)
    assert response.status_code == 200  # and what was held of it is free again
    second = asyncio.create_task(ask(proxy, stream=True, **LONG))
    await proxy.upstream.next_call()
    await proxy.upstream.next_call()
    await refused(proxy)
    await refused(proxy, EMBEDDINGS)
    go_on.set()
    assert (await first).status_code == 200
    await second
    proxy.upstream.always(lambda _: text_stream("Hi"))
    await until_served(proxy)
